"""The events of a job, a line of JSON each. Pure.

| event | written when | fields |
|---|---|---|
| `started` | an attempt begins | `attempt`, `tasks` |
| `lost` | a task ends that should not have | `task`, `step`, `reason` |
| `hang` | a task makes no progress | `tasks`, `reason`, `seconds` (of silence) |
| `restarted` | a task of an elastic job is started again | `task`, `tier` |
| `re-formed` | the members of an elastic job form a group | `members`, `tier` |
| `saved` | a checkpoint is complete | `task`, `step` |
| `resumed` | training goes on from a checkpoint | `task`, `step` |
| `straggler` | a worker has become slow, or is not any more | `task`, `worker`, `is_slow`, `part`, `reason`, `cost` |
| `rebalanced` | the workers get other shares of the global batch | `task`, `percent` (by worker) |
| `task_times` | a task's process has ended | `task`, `step`, `seconds` (of its life), `phases` |
| `ended` | an attempt has ended | `attempt`, `status`, `reason`, `step` |
| `waiting` | the next attempt waits | `seconds`, `reason`, `tier` |

Every line has `event` and `unix_time`. `tier` is that of the recovery: 1 for survivors that go on in their processes, 2
for processes that are started again and restore the newest checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tfdist.cluster.job_reports import file_stem

__all__ = ["EVENTS", "LAUNCHER_EVENTS_NAME", "LOG_NAME", "JobEvent", "event_to_line", "parse_event", "task_events_name"]

EVENTS = (
    *("started", "lost", "hang", "restarted", "re-formed", "saved", "resumed", "straggler", "rebalanced", "task_times"),
    *("ended", "waiting"),
)
#: In the directory that `tfdist run --log-dir` names.
LOG_NAME = "events.jsonl"
#: In the report directory: the launcher's own events, for the tasks.
LAUNCHER_EVENTS_NAME = "events-launcher.jsonl"


@dataclass(frozen=True)
class JobEvent:
    """One event.

    Attributes:
        event: One of `EVENTS`.
        unix_time: When, in seconds since 1970.
        fields: What else there is.
    """

    event: str
    unix_time: float
    fields: dict[str, Any] = field(default_factory=dict)


def task_events_name(task_name: str) -> str:
    """The file in the report directory in which a task leaves its own events for the launcher."""
    return f"events-{file_stem(task_name)}.jsonl"


def event_to_line(event: JobEvent) -> str:
    """The event as a line."""
    return json.dumps({"event": event.event, "unix_time": round(event.unix_time, 3), **event.fields}) + "\n"


def parse_event(line: str) -> JobEvent | None:
    """Reads a line; None where it is no event, or half of one."""
    try:
        fields = json.loads(line)
        event, unix_time = fields.pop("event"), float(fields.pop("unix_time"))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return JobEvent(event, unix_time, fields) if event in EVENTS else None
