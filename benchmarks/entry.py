"""What every measuring process runs: takes its core, measures, and writes its result to a file."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.place import Place

__all__ = ["main", "read_result"]


def main() -> None:
    """Arguments: a participant's module, its arguments as JSON, the number of workers, and the cores of every task."""
    module, arguments, workers, cores = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    task = os.environ["TFDIST_TASK"]
    os.sched_setaffinity(0, cores[task])  # before anything makes threads
    rank = int(task.split()[1]) if task.startswith("worker") else 0
    place = Place(task, rank, workers, Path(os.environ["TFDIST_REPORT_DIR"]))
    measured = importlib.import_module(f"benchmarks.participants.{module}").measure(place, **arguments)
    written = place.directory / f"result of {task}.part"
    written.write_text(json.dumps(measured))
    written.rename(_result_file(place.directory, task))
    if task.startswith("worker"):
        place.tell_all("end", "")  # TensorFlow ends a worker whose chief has gone
    os._exit(0)  # leave out what libraries do at exit


def read_result(directory: Path, task: str) -> dict[str, Any] | None:
    """What a task has measured; None as long as it has not."""
    file = _result_file(directory, task)
    return json.loads(file.read_text()) if file.exists() else None


def _result_file(directory: Path, task: str) -> Path:
    return directory / f"result of {task}"
