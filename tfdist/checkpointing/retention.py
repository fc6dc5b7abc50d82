"""Which checkpoints are kept: a pure function from the list of complete ones to those that stay, with the reason."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tfdist.errors import ArgumentError, describe_problem

__all__ = ["CheckpointFacts", "Retention", "kept_checkpoints"]


@dataclass(frozen=True)
class CheckpointFacts:
    """What a decision about a complete checkpoint rests on.

    Attributes:
        name: Its directory's name.
        step: Steps that its state has behind it.
        time: When it was committed, in seconds since 1970.
        metrics: Values by which it may be the best one.
    """

    name: str
    step: int
    time: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Retention:
    """Which checkpoints stay. One that any rule keeps stays; the newest complete one always does.

    Attributes:
        keep_newest: How many of the newest; None for all of them.
        keep_best: How many of the best by `monitor`.
        monitor: A name in `record["metrics"]` of the snapshots, such as `val_loss`.
        mode: `min` or `max`: which value of `monitor` is the best.
        keep_every_steps: The first checkpoint of every so many steps stays for good; None for no such rule.

    Raises:
        ArgumentError: A number is out of range, or `keep_best` has nothing to go by.
    """

    keep_newest: int | None = 3
    keep_best: int = 0
    monitor: str | None = None
    mode: str = "min"
    keep_every_steps: int | None = None

    def __post_init__(self) -> None:
        for name, minimum in (("keep_newest", 1), ("keep_best", 0), ("keep_every_steps", 1)):
            value = getattr(self, name)
            may_be_none = name != "keep_best"
            if value is None and may_be_none:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                raise _not_so(name, value, f"a whole number, at least {minimum}{', or None' if may_be_none else ''}")
        if self.mode not in ("min", "max"):
            raise _not_so("mode", self.mode, "min or max")
        if self.keep_best and self.monitor is None:
            raise _not_so("monitor", None, "the name of a metric, because keep_best needs one")


def kept_checkpoints(
    checkpoints: Sequence[CheckpointFacts], retention: Retention, *, protected: Collection[str] = ()
) -> dict[str, str]:
    """Chooses what stays.

    Args:
        checkpoints: All complete checkpoints, in any order. Damaged ones must not be among them: they would count as
            the newest while the last good one goes.
        retention: The rules.
        protected: Names that stay in any case, such as the one just written.

    Returns:
        The names that stay, with the reason.
    """
    newest_first = sorted(checkpoints, key=lambda found: (found.step, found.time, found.name), reverse=True)
    kept: dict[str, str] = {}
    for found in newest_first[:1]:
        kept[found.name] = "the newest"
    for found in newest_first[: retention.keep_newest]:
        kept.setdefault(found.name, f"one of the newest {retention.keep_newest or len(newest_first)}")
    if retention.keep_best and retention.monitor is not None:
        monitor, sign = retention.monitor, 1 if retention.mode == "min" else -1
        rated = [found for found in newest_first if not math.isnan(found.metrics.get(monitor, math.nan))]
        rated.sort(key=lambda found: sign * found.metrics[monitor])  # stable: of equals, the newer one first
        for found in rated[: retention.keep_best]:
            kept.setdefault(found.name, f"one of the best {retention.keep_best} by {monitor}")
    if retention.keep_every_steps is not None:
        first_of: dict[int, CheckpointFacts] = {}
        for found in newest_first:  # the last one written into the table is the oldest of its stretch of steps
            first_of[found.step // retention.keep_every_steps] = found
        for found in first_of.values():
            kept.setdefault(found.name, f"the first of {retention.keep_every_steps} steps")
    for found in newest_first:
        if found.name in protected:
            kept.setdefault(found.name, "just written")
    return kept


def _not_so(name: str, value: object, expected: str) -> ArgumentError:
    return ArgumentError(
        describe_problem(
            f"{name} cannot be {value!r}",
            received=f"{name}={value!r} (from the argument)",
            expected=expected,
            fix="see tfdist.checkpointing.Retention",
        )
    )
