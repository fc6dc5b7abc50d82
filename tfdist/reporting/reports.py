"""Writing a task's progress and failure reports."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from pathlib import Path

from tfdist.cluster.job_environment import JobEnvironment, parse_job_environment
from tfdist.cluster.job_reports import (
    PHASES,
    FailureReport,
    ProgressReport,
    failure_file_name,
    progress_file_name,
    report_to_json,
)
from tfdist.reporting.heartbeat import start_heartbeat

_phases_reached: set[str] = set()  # by this process


def report_progress(phase: str) -> None:
    """Tells the launcher that this task has come to a phase. Does nothing where there is no launcher.

    A report that cannot be written is dropped: training matters more than its reports.

    Args:
        phase: One of `started`, `connecting` (it waits for its peers), `connected`, `training`, `ended`.
    """
    assert phase in PHASES, phase
    start_heartbeat()
    job = parse_job_environment(os.environ)
    _phases_reached.add(phase)
    if job is not None:
        has_waited = "connecting" in _phases_reached
        report = ProgressReport(task=job.task_name, phase=phase, has_waited=has_waited, unix_time=time.time())
        _write(job, progress_file_name(job.task_name), report_to_json(report))


def report_failure(error: BaseException) -> None:
    """Tells the launcher why this task fails. Does nothing where there is no launcher.

    Args:
        error: The exception that ends the task.
    """
    job = parse_job_environment(os.environ)
    if job is not None:
        report = FailureReport(
            task=job.task_name,
            error_type=type(error).__name__,
            message=str(error),
            traceback="".join(traceback.format_exception(error)),
            unix_time=time.time(),
        )
        _write(job, failure_file_name(job.task_name), report_to_json(report))


def _write(job: JobEnvironment, file_name: str, text: str) -> None:
    """Writes a file that its reader sees whole or not at all."""
    path = Path(job.report_dir) / file_name
    temporary = path.with_name(f"{file_name}.{os.getpid()}.writing")
    with contextlib.suppress(OSError):
        temporary.write_text(text, encoding="ascii")  # as JSON, it has no other characters
        temporary.replace(path)
