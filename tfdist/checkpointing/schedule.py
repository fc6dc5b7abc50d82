"""When to save: a decision with its reason, from counts and times that the caller gathered.

Counts of steps and ends of epochs are the same on every worker, so every worker decides alike without asking. Times are
not: where `needs_clock` says so, the chief decides with `answer_by_clock` and tells the others, at steps that it named
before, so that no step pays for a question that cannot be due yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfdist.errors import ArgumentError, describe_problem

__all__ = ["ClockAnswer", "SaveDecision", "SaveSchedule", "answer_by_clock", "decide_save"]

#: The chief is asked about the time at most this often within an interval, so that a save is late by 5 % of it.
_QUESTIONS_PER_INTERVAL = 20
_MAX_STEPS_BETWEEN_QUESTIONS = 10_000


@dataclass(frozen=True)
class SaveSchedule:
    """When checkpoints are due.

    Attributes:
        interval_steps: A checkpoint at each step that is a multiple of it; None for none.
        interval_s: A checkpoint when the last one is so many seconds old, by the chief's clock; None for none.
        each_epoch: A checkpoint at the end of each epoch.

    Raises:
        ArgumentError: An interval is not above 0.
    """

    interval_steps: int | None = None
    interval_s: float | None = None
    each_epoch: bool = True

    def __post_init__(self) -> None:
        steps = self.interval_steps
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise _no_interval("save_interval_steps", steps, "a whole number of steps, at least 1, or None")
        seconds = self.interval_s
        if seconds is not None and (
            isinstance(seconds, bool)
            or not isinstance(seconds, (int, float))
            or not math.isfinite(seconds)
            or seconds <= 0
        ):
            raise _no_interval("save_interval_s", seconds, "a number of seconds above 0, or None")

    @property
    def needs_clock(self) -> bool:
        """Whether the chief's clock has a say."""
        return self.interval_s is not None


@dataclass(frozen=True)
class SaveDecision:
    """Whether to save now, and why (or why not)."""

    save: bool
    reason: str


@dataclass(frozen=True)
class ClockAnswer:
    """What the chief tells all workers when they ask about the time.

    Attributes:
        save: Whether the time for a checkpoint has come.
        next_step: The step at which to ask again.
        reason: Why.
    """

    save: bool
    next_step: int
    reason: str


def decide_save(
    schedule: SaveSchedule,
    *,
    step: int,
    last_saved_step: int | None,
    epoch_ends: bool = False,
    time_has_come: bool = False,
    request: str | None = None,
) -> SaveDecision:
    """Decides after a step, on every worker alike.

    Args:
        schedule: When checkpoints are due.
        step: Steps done, of all epochs.
        last_saved_step: The step of the newest checkpoint that was begun or restored; None if there is none.
        epoch_ends: Whether this is the end of an epoch.
        time_has_come: The agreed `ClockAnswer.save`.
        request: An agreed wish beyond the schedule, such as `SIGTERM` or `an exception`.
    """
    ends = epoch_ends and schedule.each_epoch
    if step == last_saved_step and not ends:
        # At the end of an epoch the state is another one at the same step: metrics are reset, validation has run.
        return SaveDecision(False, f"step {step} is saved already")
    if request is not None:
        return SaveDecision(True, request)
    if ends:
        return SaveDecision(True, "the epoch ends")
    if schedule.interval_steps is not None and step > 0 and step % schedule.interval_steps == 0:
        return SaveDecision(True, f"save_interval_steps={schedule.interval_steps}")
    if time_has_come:
        return SaveDecision(True, f"save_interval_s={schedule.interval_s:g}")
    return SaveDecision(False, "nothing is due")


def answer_by_clock(
    schedule: SaveSchedule, *, step: int, now: float, last_save_time: float, seconds_per_step: float | None
) -> ClockAnswer:
    """The chief's answer to a question about the time.

    Args:
        schedule: When checkpoints are due, with an `interval_s`.
        step: Steps done.
        now: The chief's monotonic clock, in seconds.
        last_save_time: When its last save began, or training did, by the same clock.
        seconds_per_step: How long a step takes, as far as is known.
    """
    assert schedule.interval_s is not None
    elapsed = max(now - last_save_time, 0.0)
    save = elapsed >= schedule.interval_s
    left_s = schedule.interval_s if save else schedule.interval_s - elapsed
    wait_s = min(left_s, max(left_s / 2, schedule.interval_s / _QUESTIONS_PER_INTERVAL))
    steps = 1
    if seconds_per_step is not None and seconds_per_step > 0:
        steps = int(min(max(wait_s / seconds_per_step, 1), _MAX_STEPS_BETWEEN_QUESTIONS))
    return ClockAnswer(save, step + steps, f"{elapsed:.3g} of {schedule.interval_s:g} seconds since the last save")


def _no_interval(name: str, value: object, expected: str) -> ArgumentError:
    return ArgumentError(
        describe_problem(
            f"{name} cannot be {value!r}",
            received=f"{name}={value!r} (from the argument)",
            expected=expected,
            fix=f"give a number such as {name}=100",
        )
    )
