"""What every measuring process runs: takes its core, measures, and prints one line of JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from benchmarks.place import Place

__all__ = ["RESULT_MARK", "main"]

#: How the line begins.
RESULT_MARK = '{"benchmark": '


def main() -> None:
    """Arguments: a participant's module, its arguments as JSON, the number of workers, and the cores of every task."""
    module, arguments, workers, cores = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    task = os.environ["TFDIST_TASK"]
    os.sched_setaffinity(0, cores[task])  # before anything makes threads
    rank = int(task.split()[1]) if task.startswith("worker") else 0
    place = Place(task, rank, workers, Path(os.environ["TFDIST_REPORT_DIR"]))
    measured = importlib.import_module(f"benchmarks.participants.{module}").measure(place, **arguments)
    print(json.dumps({"benchmark": measured}), flush=True)
    if task.startswith("worker"):
        place.tell_all("end", "")  # TensorFlow ends a worker whose chief has gone
    os._exit(0)  # leave out what libraries do at exit
