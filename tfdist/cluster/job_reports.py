"""The reports that a task leaves for the launcher in the job's report directory: two of JSON, and its stacks.

Pure: these functions turn reports into text and back. `tfdist.reporting` writes the files, the launcher reads them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

#: The phases of a task in order. `connecting`: it waits for its peers. `connected`: its strategy is there.
PHASES = ("started", "connecting", "connected", "training", "ended")


@dataclass(frozen=True)
class ProgressReport:
    """How far a task has come.

    Attributes:
        task: The task in words, such as `worker 1`.
        phase: One of `PHASES`.
        has_waited: Whether the task has been in the phase `connecting`, now or before.
        unix_time: When the phase began, in seconds.
    """

    task: str
    phase: str
    has_waited: bool
    unix_time: float


@dataclass(frozen=True)
class FailureReport:
    """Why a task failed.

    Attributes:
        task: The task in words, such as `worker 1`.
        error_type: The name of the exception's class.
        message: The exception's message.
        traceback: The traceback as Python prints it.
        unix_time: When it was raised, in seconds.
    """

    task: str
    error_type: str
    message: str
    traceback: str
    unix_time: float


def progress_file_name(task_name: str) -> str:
    """The name of a task's progress report in the report directory."""
    return f"progress-{file_stem(task_name)}.json"


def failure_file_name(task_name: str) -> str:
    """The name of a task's failure report in the report directory."""
    return f"failure-{file_stem(task_name)}.json"


def stacks_file_name(task_name: str) -> str:
    """The name of the file in which a task writes its stacks when it is asked to."""
    return f"stacks-{file_stem(task_name)}"


def file_stem(task_name: str) -> str:
    """A task's name as part of a file name: `worker-1`."""
    return task_name.replace(" ", "-")


def report_to_json(report: ProgressReport | FailureReport) -> str:
    """The report as text."""
    return json.dumps(asdict(report))


def parse_progress_report(text: str) -> ProgressReport | None:
    """Reads a progress report; None if the text is no such report (a task may have been killed, or is foreign)."""
    fields = _parse_fields(text, ("task", "phase"), ("has_waited",))
    if fields is None or fields["phase"] not in PHASES or not isinstance(fields.get("has_waited"), bool):
        return None
    return ProgressReport(**fields)


def parse_failure_report(text: str) -> FailureReport | None:
    """Reads a failure report; None if the text is no such report."""
    fields = _parse_fields(text, ("task", "error_type", "message", "traceback"))
    return None if fields is None else FailureReport(**fields)


def _parse_fields(text: str, string_names: tuple[str, ...], other_names: tuple[str, ...] = ()) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    unix_time = value.get("unix_time")
    if not isinstance(unix_time, (int, float)) or isinstance(unix_time, bool):
        return None
    fields: dict[str, Any] = {name: value.get(name) for name in string_names}
    if not all(isinstance(field, str) for field in fields.values()):
        return None
    return {**fields, **{name: value.get(name) for name in other_names}, "unix_time": float(unix_time)}
