"""Whether a job whose tasks have ended is started again, and when. Pure.

Two budgets: of failures, and of preemptions, which are nobody's fault. A failure that comes again and again in the same
place is no bad luck, and ends the job before its budget does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AttemptEnd", "GiveUp", "Restart", "RestartPolicy", "decide_restart", "is_preemption"]


@dataclass(frozen=True)
class RestartPolicy:
    """When to start a job again.

    Attributes:
        max_restarts: How many failures are followed by another attempt.
        max_preemptions: How many preemptions are.
        first_delay_s: How long to wait before the attempt that follows a failure, in seconds. It doubles with each
            failure in a row that brought training no further.
        max_delay_s: What it does not exceed.
        same_failure_limit: After so many equal failures in a row the job is given up.
    """

    max_restarts: int = 0
    max_preemptions: int = 0
    first_delay_s: float = 1.0
    max_delay_s: float = 60.0
    same_failure_limit: int = 3


@dataclass(frozen=True)
class AttemptEnd:
    """How an attempt ended that did not end well.

    Attributes:
        reason: In words.
        place: What tells its failure from others, such as the error; empty where nothing is known.
        step: The step at which it ended, where it is known.
        is_preempted: Whether it was preempted; else it failed.
        may_restart: Whether another attempt makes sense: not where a person ended the job.
    """

    reason: str
    place: str
    step: int | None = None
    is_preempted: bool = False
    may_restart: bool = True


@dataclass(frozen=True)
class Restart:
    """Start the job again, `delay_s` seconds from now."""

    delay_s: float
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """End the job. An empty reason: nobody had asked for restarts."""

    reason: str


def is_preemption(returncode: int) -> bool:
    """Whether a task that ended so was preempted.

    Args:
        returncode: Its exit status, negative for a signal. EX_TEMPFAIL is what a task ends with that was asked to end,
            and has saved a checkpoint; SIGTERM ends one that could not.
    """
    return returncode in (os.EX_TEMPFAIL, -signal.SIGTERM)


def decide_restart(policy: RestartPolicy, ends: Sequence[AttemptEnd]) -> Restart | GiveUp:
    """Decides what follows the last of `ends`.

    Args:
        policy: The rules.
        ends: How every attempt so far ended, none of them well.
    """
    last = ends[-1]
    if not last.may_restart:
        return GiveUp("")
    same = _count_equal_at_end(ends)
    if not last.is_preempted and 1 < policy.same_failure_limit <= same:
        where = "" if last.step is None else f" at step {last.step}"
        return GiveUp(
            f"the same failure{where} came {same} times in a row, which is no bad luck: another attempt would end alike"
        )
    kind = "preempted" if last.is_preempted else "failed"
    limit, option = (
        (policy.max_preemptions, "--max-preemptions") if last.is_preempted else (policy.max_restarts, "--max-restarts")
    )
    count = sum(end.is_preempted == last.is_preempted for end in ends)
    if count > limit:
        return GiveUp(f"{kind} {count} times, and {option}={limit}" if limit else "")
    delay_s = (
        0.0 if last.is_preempted else min(policy.max_delay_s, policy.first_delay_s * 2.0 ** (_fruitless(ends) - 1))
    )
    return Restart(delay_s, f"{kind} {count} of at most {limit} times ({option})")


def _count_equal_at_end(ends: Sequence[AttemptEnd]) -> int:
    last = ends[-1]
    if not last.place:
        return 0
    count = 0
    for end in reversed(ends):
        if (end.place, end.step, end.is_preempted) != (last.place, last.step, last.is_preempted):
            break
        count += 1
    return count


def _fruitless(ends: Sequence[AttemptEnd]) -> int:
    """How many failures stand at the end of the row, the last one included, before one that training got beyond."""
    failures = [end for end in ends if not end.is_preempted]
    count = 1
    for earlier, later in zip(reversed(failures[:-1]), reversed(failures), strict=False):
        if earlier.step is not None and later.step is not None and later.step > earlier.step:
            break
        count += 1
    return count
