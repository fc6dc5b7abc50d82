"""Tells the launcher when a step function runs."""

from __future__ import annotations

from typing import Any

from tfdist.reporting.heartbeat import count_steps, in_phase

__all__ = ["MonitoredStep"]


class MonitoredStep:
    """What Keras calls `train_function`, `test_function` or `predict_function`.

    Args:
        function: The function.
        num_steps: Steps of training that a call counts for.
    """

    def __init__(self, function: Any, num_steps: int) -> None:
        self._function = function
        self._num_steps = num_steps
        self._is_first = True

    def __call__(self, *args: Any) -> Any:
        """Calls it."""
        with in_phase("trace" if self._is_first else "step"):
            result = self._function(*args)
            count_steps(self._num_steps)
        self._is_first = False
        return result

    def __getattr__(self, name: str) -> Any:
        """What else the function has."""
        return getattr(self._function, name)
