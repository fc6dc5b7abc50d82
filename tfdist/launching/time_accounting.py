"""Where the time of a job went, from its event log. Pure.

The wall-clock time of an attempt is divided by what its processes that train did, averaged over the tasks; what no
process accounts for, because it had not begun to report, or had ended, or was being replaced, is `start-up` (before its
first report) or `idle`. So the parts sum to the wall-clock time by construction, and `idle` is what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfdist.cluster.job_events import JobEvent

__all__ = ["PARTS", "Recovery", "TimeReport", "account"]

#: Part -> what it is.
PARTS = {
    "start-up": "processes that start, import and build, and what scripts do outside of fit, evaluate and predict",
    "tracing": "first calls of step functions",
    "input": "waiting for the next batch, as far as it is known apart from the step",
    "training": "steps without exchanges",
    "repeated work": "of these, steps that were done before and lost",
    "exchange": "exchanges between workers, and waiting for each other in them",
    "saves": "checkpoints, as far as training waited for them",
    "callbacks": "between steps",
    "detection": "hangs, until they were diagnosed",
    "restart": "between attempts",
    "idle": "what is left",
}
_PART_OF = {
    "outside": "start-up",
    "trace": "tracing",
    "input": "input",
    "step": "training",
    "exchange": "exchange",
    "save": "saves",
}
_MAY_HANG = ("exchange", "input", "training", "callbacks")


@dataclass(frozen=True)
class Recovery:
    """One recovery.

    Attributes:
        unix_time: When it began.
        tier: 1: survivors went on; 2: processes were started again.
        cause: In words.
        seconds: What it lost: until the next group was formed, or until training had resumed; None where unknown.
    """

    unix_time: float
    tier: int
    cause: str
    seconds: float | None


@dataclass(frozen=True)
class TimeReport:
    """Where the time went.

    Attributes:
        wall_s: From the first start to the last end.
        parts: Seconds by part, in the order of `PARTS`; they sum to `wall_s`.
        num_attempts: How often all tasks were started.
        status: The last attempt's; None while it runs.
        recoveries: What was recovered from.
    """

    wall_s: float
    parts: dict[str, float]
    num_attempts: int
    status: int | None
    recoveries: list[Recovery]


def account(events: Sequence[JobEvent]) -> TimeReport | None:
    """Accounts for the time of the last job in a log; None where there is none.

    Args:
        events: Of the log, in the order of writing. A job begins with attempt 0.
    """
    starts = [k for k, each in enumerate(events) if each.event == "started" and each.fields.get("attempt") == 0]
    if not starts:
        return None
    events = events[starts[-1] :]
    parts = dict.fromkeys(PARTS, 0.0)
    recoveries: list[Recovery] = []
    attempts: list[list[JobEvent]] = []
    for event in events:
        if event.event == "started":
            attempts.append([])
        attempts[-1].append(event)
    for index, attempt in enumerate(attempts):
        ended = next((each for each in attempt if each.event == "ended"), attempt[-1])
        _add_attempt(parts, attempt, ended.unix_time - attempt[0].unix_time)
        if index + 1 < len(attempts):
            parts["restart"] += attempts[index + 1][0].unix_time - ended.unix_time
            recoveries.append(_restart(ended, attempts[index + 1]))
            _move_repeated_work(parts, attempt, attempts[index + 1])
        recoveries += _regroupings(attempt)
    wall_s = events[-1].unix_time - events[0].unix_time
    parts["idle"] = wall_s - sum(seconds for part, seconds in parts.items() if part != "idle")
    last = next((each for each in reversed(events) if each.event == "ended"), None)
    status = None if last is None else last.fields.get("status")
    return TimeReport(wall_s, parts, len(attempts), status, sorted(recoveries, key=lambda each: each.unix_time))


def _add_attempt(parts: dict[str, float], attempt: Sequence[JobEvent], wall_s: float) -> None:
    """Adds what the processes of an attempt did, averaged over the tasks that have steps."""
    lives = [each.fields for each in attempt if each.event == "task_times" and each.fields.get("phases")]
    tasks = {life["task"] for life in lives}
    if not tasks:
        parts["start-up"] += wall_s
        return
    detection_s = sum(float(each.fields.get("seconds") or 0.0) for each in attempt if each.event == "hang")
    for life in lives:
        phases: dict[str, Any] = life["phases"]
        for phase, seconds in phases.items():
            parts[_PART_OF.get(phase, "callbacks")] += float(seconds) / len(tasks)
        parts["start-up"] += max(0.0, float(life["seconds"]) - sum(map(float, phases.values()))) / len(tasks)
    moved_s = min(detection_s, sum(parts[part] for part in _MAY_HANG))
    for part in _MAY_HANG:  # what all did while one hung
        taken_s = min(moved_s, parts[part])
        parts[part] -= taken_s
        parts["detection"] += taken_s
        moved_s -= taken_s


def _restart(ended: JobEvent, following: Sequence[JobEvent]) -> Recovery:
    resumed = next((each for each in following if each.event == "resumed"), None)
    seconds = None if resumed is None else resumed.unix_time - ended.unix_time
    return Recovery(ended.unix_time, 2, str(ended.fields.get("reason", "")), seconds)


def _move_repeated_work(parts: dict[str, float], before: Sequence[JobEvent], after: Sequence[JobEvent]) -> None:
    """Takes the steps that the later attempt did again out of training."""
    ended = next((each for each in before if each.event == "ended"), None)
    resumed = next((each for each in after if each.event == "resumed"), None)
    lives = [each.fields for each in before if each.event == "task_times" and each.fields.get("step")]
    if ended is None or ended.fields.get("step") is None or not lives:
        return
    begun = next((int(each.fields["step"]) for each in before if each.event == "resumed"), 0)
    made = sum(max(0, int(life["step"]) - begun) for life in lives)
    if made == 0:
        return
    again = max(0, int(ended.fields["step"]) - (0 if resumed is None else int(resumed.fields["step"])))
    a_step = sum(float(life["phases"].get("step", 0.0)) for life in lives) / made
    moved_s = min(again * a_step, parts["training"])
    parts["training"] -= moved_s
    parts["repeated work"] += moved_s


def _regroupings(attempt: Sequence[JobEvent]) -> list[Recovery]:
    found, lost = [], None
    for event in attempt:
        if event.event == "lost":
            lost = lost or event
        elif event.event == "re-formed" and lost is not None:
            found.append(Recovery(lost.unix_time, 1, str(lost.fields["reason"]), event.unix_time - lost.unix_time))
            lost = None
    return found
