"""From the start of two workers to the end of their first step: by `tfdist run`, and as processes started by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.place import Place
from tfdist.launching.plan import THREAD_VARIABLES, plan_tasks
from tfdist.launching.ports import choose_free_ports

_WORKERS = 2
_LIMIT_S = 120.0
_SCRIPT = """
import sys, time
sys.path.insert(0, {root!r})
import keras
import tfdist
from benchmarks.keras_models import build_compiled, make_dataset

def train():
    strategy = tfdist.multi_worker_mirrored_strategy()
    with strategy.scope():
        model = build_compiled(keras, "small_dense")
    model.fit(make_dataset("small_dense", {workers}, 8), steps_per_epoch=1, verbose=0)
    open({directory!r} + "/first-step-" + str(tfdist.cluster_config().worker_index), "w").write(str(time.monotonic()))

tfdist.run(train)
"""


def measure(place: Place) -> dict[str, Any]:
    root = str(Path(__file__).resolve().parents[2])
    script = place.directory / "first_step.py"
    script.write_text(_SCRIPT.format(root=root, workers=_WORKERS, directory=str(place.directory)))
    one_thread = dict.fromkeys(THREAD_VARIABLES, "1") | {"TF_NUM_INTEROP_THREADS": "2"}
    env = {name: value for name, value in os.environ.items() if not name.startswith("TFDIST_")} | one_thread

    def by_launcher() -> list[subprocess.Popen[bytes]]:
        return [_start(["-m", "tfdist", "run", "--workers", str(_WORKERS), str(script)], env)]

    def by_hand() -> list[subprocess.Popen[bytes]]:
        plans = plan_tasks(_WORKERS, 0, False, choose_free_ports(_WORKERS))
        return [_start([str(script)], {**env, "TF_CONFIG": str(plan.tf_config)}) for plan in plans]

    series = {}
    for label, start in {"processes started by hand": by_hand, "tfdist run": by_launcher}.items():
        for rank in range(_WORKERS):
            (place.directory / f"first-step-{rank}").unlink(missing_ok=True)
        began = time.monotonic()
        _wait_for_end(start())
        stamps = [float((place.directory / f"first-step-{rank}").read_text()) for rank in range(_WORKERS)]
        series[f"to the first step, {label}"] = {"wall": [(max(stamps) - began) * 1000]}
    return {"series": series}


def _start(arguments: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *arguments], env=env, stdout=subprocess.DEVNULL)


def _wait_for_end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Waits until all have ended well; in any case none is left."""
    end = time.monotonic() + _LIMIT_S
    try:
        for process in processes:
            status = process.wait(timeout=max(0.1, end - time.monotonic()))
            if status:
                raise RuntimeError(f"{process.args} ended with status {status}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
