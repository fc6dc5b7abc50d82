"""Runs one participant once: a process for every task, each on its core, with a hard time limit; all are reaped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.entry import RESULT_MARK
from benchmarks.plan import Measurement
from tfdist.testing.local_cluster import LocalCluster

__all__ = ["cores_of_tasks", "measure"]

_ROOT = Path(__file__).resolve().parents[1]
_SCRIPT = "from benchmarks.entry import main\n\nmain()\n"
#: One thread to compute; another pool has two, because a collective of TensorFlow's holds one while it waits.
_ENVIRONMENT = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TFDIST_START_TIMEOUT_S": "60",
    "TFDIST_EXCHANGE_TIMEOUT_S": "60",
}


def cores_of_tasks(tasks: tuple[str, ...], cores: list[int], devices: int) -> dict[str, list[int]]:
    """Gives every task its core, in turn; a single process with several devices gets one for each. Pure."""
    if devices > 1:
        return dict.fromkeys(tasks, cores[:devices])
    workers = [task for task in tasks if task.startswith("worker")]
    others = [task for task in tasks if task not in workers]
    return {task: [cores[index % len(cores)]] for index, task in enumerate([*workers, *others])}


def measure(measurement: Measurement, time_limit_s: float) -> dict[str, Any]:
    """Returns what the first worker (with parameter servers, the chief) measured, or `{"error": what went wrong}`."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    m = measurement
    arguments = [m.module, json.dumps(m.arguments), str(m.workers)]
    cluster = LocalCluster(workers=m.workers, ps=m.parameter_servers, script=_SCRIPT, time_limit_s=time_limit_s)
    cores = cores_of_tasks(cluster.task_names, sorted(os.sched_getaffinity(0)), m.devices)
    cluster = LocalCluster(
        workers=m.workers,
        ps=m.parameter_servers,
        script=_SCRIPT,
        args=[*arguments, json.dumps(cores)],
        env={**_ENVIRONMENT, "PYTHONPATH": path, **m.environment},
        time_limit_s=time_limit_s,
    )
    measuring = ["chief"] if m.parameter_servers else [f"worker {rank}" for rank in range(m.workers)]
    try:
        with cluster:
            cluster.wait_for(
                lambda: (
                    all(RESULT_MARK in cluster.stdout(name) for name in measuring)
                    or any(cluster.returncode(name) for name in cluster.task_names)
                ),
                f"the results of {m.participant}",
            )
            lines = cluster.stdout(measuring[0]).splitlines()
            found = [line for line in lines if line.startswith(RESULT_MARK)]
            if not found:
                return {"error": _last_words(cluster)}
            return json.loads(found[-1])["benchmark"]
    except AssertionError as error:
        return {"error": str(error).splitlines()[0]}


def _last_words(cluster: LocalCluster) -> str:
    failed = [name for name in cluster.task_names if cluster.returncode(name)]
    lines = [line for name in failed for line in cluster.stderr(name).splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and not line.startswith((" ", "\t"))]
    return (errors or lines or [f"{', '.join(failed)} failed"])[-1][:300]
