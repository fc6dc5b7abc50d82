"""Runs a command as every worker of a small job and keeps its output to itself, unless it fails."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence

from tfdist.cluster.job_environment import JobEnvironment
from tfdist.cluster.job_reports import file_stem
from tfdist.errors import LaunchError, TimeLimitError, describe_problem
from tfdist.launching.guard import JobGuard
from tfdist.launching.plan import build_task_env, count_ports, plan_tasks, threads_per_task
from tfdist.launching.ports import choose_free_ports
from tfdist.launching.process import TaskProcess

_POLL_S = 0.05
_FAILURE_GRACE_S = 2.0  # in which peers of a task that failed write their own last words
_SHOWN_LINES = 25


def run_quietly(command: Sequence[str], workers: int, env: Mapping[str, str], time_limit_s: float) -> None:
    """Runs a job to its end. To be called in the main thread.

    Args:
        command: The command of every worker.
        workers: How many workers; one gets no TF_CONFIG.
        env: The environment of the tasks.
        time_limit_s: How long the job may take.

    Raises:
        LaunchError: A task failed; the message has the end of its output.
        TimeLimitError: The job has not ended within the limit.
    """
    plans = plan_tasks(workers, 0, False, choose_free_ports(count_ports(workers, 0)))
    num_threads = threads_per_task(len(os.sched_getaffinity(0)), workers, len(plans))
    deadline = time.monotonic() + time_limit_s
    with JobGuard() as guard, contextlib.ExitStack() as files:
        processes: dict[str, TaskProcess] = {}
        paths = {plan.name: guard.directory / f"{file_stem(plan.name)}.log" for plan in plans}
        for plan in plans:
            job = JobEnvironment(guard.job_id, str(guard.directory), plan.name, guard.secret)
            output = files.enter_context(paths[plan.name].open("wb"))
            processes[plan.name] = TaskProcess(command, build_task_env(plan, job, env, num_threads), output, output)
            guard.add(processes[plan.name])
        first_failed: str | None = None
        while any(process.poll() is None for process in processes.values()):
            failed = [name for name, process in processes.items() if process.poll() not in (None, 0)]
            if failed and first_failed is None:
                first_failed = failed[0]
                deadline = min(deadline, time.monotonic() + _FAILURE_GRACE_S)
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        failed = [first_failed] if first_failed else [n for n, p in processes.items() if p.poll() not in (None, 0)]
        if failed:
            text = paths[failed[0]].read_text(errors="replace")
            shown = "\n".join(text.splitlines()[-_SHOWN_LINES:])
            status = processes[failed[0]].poll()
            raise LaunchError(f"{failed[0]} ended with status {status}. The end of its output:\n{shown}")
        unfinished = [name for name, process in processes.items() if process.poll() is None]
        if unfinished:
            raise TimeLimitError(
                describe_problem(
                    "The job did not end in time",
                    received=f"{', '.join(unfinished)} still running",
                    expected=f"an end within time_limit_s={time_limit_s:g} seconds",
                    fix="Raise time_limit_s, or verify fewer steps.",
                )
            )
