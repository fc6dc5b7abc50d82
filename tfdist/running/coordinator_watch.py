"""The rule by which a serving task decides that its coordinator never came, or is gone. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Verdict(Enum):
    """What a serving task should do next."""

    SERVE = "serve"
    COORDINATOR_GONE = "coordinator gone"
    COORDINATOR_NEVER_CAME = "coordinator never came"


@dataclass(frozen=True)
class CoordinatorWatch:
    """What is known of the coordinator.

    Attributes:
        began: When serving began, in seconds on any clock.
        start_timeout_s: How long the coordinator may take to appear.
        grace_s: How long it may then be unreachable.
        last_reached: When it was reached last; None before the first time.
    """

    began: float
    start_timeout_s: float
    grace_s: float
    last_reached: float | None = None

    def observe(self, reachable: bool, now: float) -> tuple[CoordinatorWatch, Verdict]:
        """Takes one attempt to reach the coordinator into account.

        Args:
            reachable: Whether its address accepted a connection.
            now: The time of the attempt, on the clock of `began`.

        Returns:
            What is known now, and what to do.
        """
        if reachable:
            return replace(self, last_reached=now), Verdict.SERVE
        if self.last_reached is None:
            overdue = now - self.began >= self.start_timeout_s
            return self, Verdict.COORDINATOR_NEVER_CAME if overdue else Verdict.SERVE
        gone = now - self.last_reached >= self.grace_s
        return self, Verdict.COORDINATOR_GONE if gone else Verdict.SERVE
