"""Runs one participant once: a process for every task, each on its core, with a hard time limit; all are reaped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.entry import read_result
from benchmarks.plan import Measurement
from tfdist.testing.local_cluster import LocalCluster

__all__ = ["cores_of_tasks", "measure"]

_ROOT = Path(__file__).resolve().parents[1]
_SCRIPTS = {
    False: "from benchmarks.entry import main\n\nmain()\n",
    True: "from benchmarks.mpi_job import main\n\nmain()\n",
}
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
    measuring = ["chief"] if m.parameter_servers else [f"worker {rank}" for rank in range(m.workers)]
    workers = [f"worker {rank}" for rank in range(m.workers)]
    others = ["chief", *[f"ps {index}" for index in range(m.parameter_servers)]] if m.parameter_servers else []
    cores = cores_of_tasks((*workers, *others), sorted(os.sched_getaffinity(0)), m.devices)
    cluster = LocalCluster(
        workers=1 if m.is_mpi_job else m.workers,  # mpiexec starts the workers
        ps=m.parameter_servers,
        script=_SCRIPTS[m.is_mpi_job],
        args=[m.module, json.dumps(m.arguments), str(m.workers), json.dumps(cores)],
        env={**_ENVIRONMENT, "PYTHONPATH": path, **m.environment},
        time_limit_s=time_limit_s,
    )
    try:
        with cluster:
            cluster.wait_for(
                lambda: (
                    all(read_result(cluster.directory, name) is not None for name in measuring)
                    or any(cluster.returncode(name) for name in cluster.task_names)
                ),
                f"the results of {m.participant}",
            )
            return read_result(cluster.directory, measuring[0]) or {"error": _last_words(cluster)}
    except AssertionError as error:
        return {"error": str(error).splitlines()[0]}


def _last_words(cluster: LocalCluster) -> str:
    failed = [name for name in cluster.task_names if cluster.returncode(name)]
    lines = [line for name in failed for line in cluster.stderr(name).splitlines() if line.strip()]
    starts = [k for k, line in enumerate(lines) if "Error" in line and not line.startswith((" ", "\t"))]
    said = lines[starts[-1] :][:3] if starts else lines[-1:] or [f"{', '.join(failed)} failed"]
    return " ".join(line.strip() for line in said)[:300]
