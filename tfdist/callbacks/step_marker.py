"""Knows whether a step is under way, for when `fit` ends with an error."""

from __future__ import annotations

from typing import Any

__all__ = ["StepMarker"]


class StepMarker:
    """Stands in for a model's `train_function`.

    Attributes:
        is_in_step: Whether a call has not returned: under way, or ended by an error.
        logs: What the last call returned.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._function = model.train_function
        self.is_in_step = False
        self.logs: Any = None

    @classmethod
    def put_on(cls, model: Any) -> StepMarker:
        """Replaces the train function of a model."""
        model.train_function = cls(model)
        return model.train_function

    def take_off(self) -> None:
        """Undoes `put_on`."""
        if self._model.train_function is self:
            self._model.train_function = self._function

    def __call__(self, iterator: Any) -> Any:
        """Runs the train function."""
        self.is_in_step = True
        self.logs = self._function(iterator)
        self.is_in_step = False
        return self.logs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)
