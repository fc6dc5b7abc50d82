"""How a replica's mean loss becomes its share of the global one."""

from __future__ import annotations

import functools
from typing import Any

from tfdist.keras_compat import private_names
from tfdist.keras_compat.override import Override
from tfdist.keras_compat.step_view import current_view

__all__ = ["OVERRIDES"]


def _make(method: str) -> Any:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def scale(value: Any) -> Any:
            view = current_view()
            return original(value) if view is None else getattr(view, method)(value)

        return scale

    return make


OVERRIDES = (
    Override(
        private_names.loss_module,
        "scale_loss_for_distribution",
        _make("scale_loss"),
        "Every replica's mean weighs 1/N however many rows it saw, so a short or uneven batch is weighted wrongly.",
    ),
    Override(
        private_names.loss_module,
        "unscale_loss_for_distribution",
        _make("unscale_loss"),
        "It multiplies by N what was not divided by N: logged losses are wrong on uneven batches.",
    ),
)
