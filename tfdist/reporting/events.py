"""Events that a task leaves for the launcher's event log."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from tfdist.cluster.job_environment import parse_job_environment
from tfdist.cluster.job_events import JobEvent, event_to_line, task_events_name

__all__ = ["report_event"]


def report_event(event: str, **fields: Any) -> None:
    """Leaves an event. Does nothing where there is no launcher; one that cannot be written is dropped.

    Args:
        event: One of `tfdist.cluster.job_events.EVENTS`.
        **fields: JSON values beside the task's name.
    """
    job = parse_job_environment(os.environ)
    if job is None:
        return
    line = event_to_line(JobEvent(event, time.time(), {"task": job.task_name, **fields}))
    path = Path(job.report_dir) / task_events_name(job.task_name)
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(line)
