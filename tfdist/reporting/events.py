"""Events that a task leaves for the launcher's event log."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfdist.cluster.job_environment import parse_job_environment
from tfdist.cluster.job_events import JobEvent, event_to_line, task_events_name

__all__ = ["observe_events", "report_event", "stop_observing_events"]

_observers: list[Callable[[str, dict[str, Any]], None]] = []


def observe_events(observer: Callable[[str, dict[str, Any]], None]) -> None:
    """Calls `observer` with the name and the fields of each event of this process, by the thread that reports it."""
    _observers.append(observer)


def stop_observing_events(observer: Callable[[str, dict[str, Any]], None]) -> None:
    """Ends `observe_events`; nothing if it never began."""
    if observer in _observers:
        _observers.remove(observer)


def report_event(event: str, **fields: Any) -> None:
    """Leaves an event, and tells observers. Where there is no launcher, nothing is left; nor what cannot be written.

    Args:
        event: One of `tfdist.cluster.job_events.EVENTS`.
        **fields: JSON values beside the task's name.
    """
    for observer in _observers:
        observer(event, fields)
    job = parse_job_environment(os.environ)
    if job is None:
        return
    line = event_to_line(JobEvent(event, time.time(), {"task": job.task_name, **fields}))
    path = Path(job.report_dir) / task_events_name(job.task_name)
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(line)
