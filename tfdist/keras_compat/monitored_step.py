"""Tells the launcher when a step function runs, and when it takes its input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tfdist.reporting.heartbeat import count_steps, in_phase

__all__ = ["MonitoredInput", "MonitoredStep"]


class MonitoredInput:
    """An iterator whose batches are taken in a phase of their own, where Python takes them and not the graph.

    Args:
        elements: What it goes through.
    """

    def __init__(self, elements: Iterable[Any]) -> None:
        self._elements = iter(elements)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with in_phase("input"):
            return next(self._elements)


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
