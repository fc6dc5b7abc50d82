"""Starts the workers of a participant as an MPI job, on this machine.

The runner starts `main` as its only task, which becomes mpiexec; mpiexec starts `enter` as every worker. They get the
TF_CONFIG that they would get from tfdist's launcher.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from benchmarks import entry
from tfdist.launching.plan import plan_tasks
from tfdist.launching.ports import choose_free_ports

__all__ = ["enter", "find_mpiexec", "main"]

_TF_CONFIGS = "BENCHMARK_TF_CONFIGS"


def find_mpiexec() -> str | None:
    """The mpiexec of this environment, else the one on the path; None if there is none."""
    return shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")


def main() -> None:
    """Takes the arguments of `entry.main`, and passes them on to every worker."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise FileNotFoundError("mpiexec is missing: pip install mpi4py mpich")
    workers = int(sys.argv[3])
    plans = plan_tasks(workers, 0, False, choose_free_ports(workers))
    os.environ[_TF_CONFIGS] = json.dumps({plan.name: plan.tf_config for plan in plans})
    program = [sys.executable, "-c", "from benchmarks.mpi_job import enter; enter()", *sys.argv[1:]]
    os.execv(mpiexec, [mpiexec, "-n", str(workers), *program])


def enter() -> None:
    """Takes the place that MPI gives this process. mpiexec complains at the end, as `entry.main` leaves MPI running."""
    task = f"worker {os.environ['PMI_RANK']}"
    os.environ["TFDIST_TASK"] = task
    os.environ["TF_CONFIG"] = json.loads(os.environ[_TF_CONFIGS])[task]
    entry.main()
