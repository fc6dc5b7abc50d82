"""Optimizers within a step: gradients are summed first, then Keras's single-device code runs on every replica.

Stock Keras clips, decays and decides "finite" on each replica's own gradients and sums afterwards. Here the exchange
comes first. What follows is the same on all replicas, so each runs Keras's backend-independent code (the methods of
`BaseOptimizer`) on its own copy of the variables, without a further exchange; that includes accumulation, moving
averages and constraints, and their `cond`s, in which TensorFlow's `merge_call` is not possible.
"""

from __future__ import annotations

import functools
from typing import Any

from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import BaseOptimizer, LossScaleOptimizer, TFOptimizer
from tfdist.keras_compat.step_view import ReplicaView, current_view, entered

__all__ = ["OVERRIDES"]


def _make_apply(original: Any) -> Any:
    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        view = current_view()
        if not isinstance(view, ReplicaView) or view.is_reduced:
            return original(self, grads, trainable_variables)
        grads = view.reduce_gradients(grads)
        if not self.built and trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            with entered(None):  # slot variables are made for all replicas
                self.build(trainable_variables)
        with view.reduced():
            return original(self, grads, trainable_variables)

    return apply


def _make_alone(name: str) -> Any:
    """Routes a method of `TFOptimizer` to the backend-independent one where the replica updates its own copy."""

    def make(original: Any) -> Any:
        independent = getattr(BaseOptimizer, name)

        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            view = current_view()
            chosen = independent if view is not None and view.updates_alone else original
            return chosen(self, *args, **kwargs)

        return method

    return make


def _make_tf_apply(original: Any) -> Any:
    @functools.wraps(original)
    def _tf_apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        view = current_view()
        if view is not None and view.updates_alone:
            return self._common_apply(grads, trainable_variables)
        return original(self, grads, trainable_variables)

    return _tf_apply


OVERRIDES = (
    Override(
        BaseOptimizer,
        "apply",
        _make_apply,
        "Gradients are clipped on each replica, before they are summed.",
    ),
    Override(
        LossScaleOptimizer,
        "apply",
        _make_apply,
        "Each replica decides by its own gradients whether the step is finite; workers then hang.",
    ),
    Override(
        LossScaleOptimizer,
        "_tf_apply",
        _make_tf_apply,
        "`merge_call` within the loss scale's `cond`.",
    ),
    *(
        Override(
            TFOptimizer,
            name,
            _make_alone(name),
            "`merge_call` is not possible within a `cond` (gradient accumulation, averages raise).",
        )
        for name in (
            "_apply_weight_decay",
            "_backend_update_step",
            "_backend_increment_gradient_accumulators",
            "_overwrite_model_variables_with_average_value",
        )
    ),
)
