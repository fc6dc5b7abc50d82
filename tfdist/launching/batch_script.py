"""The batch script that Slurm runs. Pure: it is printed, and nothing is run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["BatchJob", "format_batch_script"]


@dataclass(frozen=True)
class BatchJob:
    """What the script asks for.

    Attributes:
        nodes: How many.
        workers_per_node: How many on each.
        command: What each worker runs.
        name: Of the job.
        time_limit: As Slurm writes it, such as `01:00:00`; None for the partition's.
        save_before_s: How long before that the workers are to save and end, in seconds.
        gpus_per_worker: How many; 0 for none.
        cpus_per_worker: How many; None for Slurm's choice.
        max_restarts: How often a step in which a task has failed is started again.
        options: Further lines of options, such as `--partition=gpu`.
    """

    nodes: int
    workers_per_node: int
    command: Sequence[str]
    name: str = "tfdist"
    time_limit: str | None = None
    save_before_s: int = 120
    gpus_per_worker: int = 0
    cpus_per_worker: int | None = None
    max_restarts: int = 3
    options: Sequence[str] = ()


def format_batch_script(job: BatchJob) -> str:
    """The text of a file for sbatch."""
    head = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.workers_per_node}",
        *([f"--cpus-per-task={job.cpus_per_worker}"] if job.cpus_per_worker else []),
        *([f"--gpus-per-task={job.gpus_per_worker}"] if job.gpus_per_worker else []),
        *([f"--time={job.time_limit}"] if job.time_limit else []),
        f"--signal=USR1@{job.save_before_s}",
        "--requeue",
        "--open-mode=append",
        *job.options,
    ]
    lines = "\n".join(f"#SBATCH {option}" for option in head)
    step = f"srun --distribution=block --kill-on-bad-exit=1 {shlex.join(job.command)}"
    return f"""#!/bin/bash
{lines}

# Each task of srun is a worker, and finds the others by Slurm's variables.
# {job.save_before_s} s before the time limit, and by `scancel --signal=USR1 JOB`, the workers get SIGUSR1: a
# FaultTolerantCheckpoint saves, and they end with status 75. The job then goes to the queue again, and goes on.
for restart in $(seq 0 {job.max_restarts}); do
  {step}
  status=$?
  if [ "$status" -eq 0 ]; then exit 0; fi
  if [ "$status" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; sleep 60; exit 75; fi
  echo "The step has ended with status $status, start $((restart + 1)) of {job.max_restarts + 1}." >&2
done
exit "$status"
"""
