"""What a straggler costs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfdist.balancing.window import Window

__all__ = ["Cost", "cost_of"]


@dataclass(frozen=True)
class Cost:
    """The time of a step, in seconds.

    Attributes:
        step_s: As it is.
        without_s: As it would be if the worker were no slower than the others.
    """

    step_s: float
    without_s: float

    @property
    def share(self) -> float:
        """The share of the step's time that the worker costs."""
        return 1 - self.without_s / self.step_s if self.step_s > 0 else 0.0


def cost_of(window: Window, worker: int, *, link: bool = False) -> Cost:
    """What one worker costs.

    Args:
        window: Measured steps.
        worker: The rank of the worker that would be no slower than the others.
        link: Whether it is its link that would be no slower than those of others.
    """
    without = window.without_link if link else window.without
    return Cost(window.step, min(window.step, without[worker]))
