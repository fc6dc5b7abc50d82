"""`BatchNormalization(synchronized=True)` within a step: the moments of the global batch."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import tensorflow_nn
from tfdist.keras_compat.step_view import ReplicaView, current_view

__all__ = ["OVERRIDES"]


def _make_compute_moments(original: Any) -> Any:
    @functools.wraps(original)
    def _compute_moments_sync(x: Any, axes: Any, keepdims: bool) -> tuple[Any, Any]:
        view = current_view()
        if not isinstance(view, ReplicaView):
            return original(x, axes, keepdims)
        x = tf.convert_to_tensor(x)
        total = tf.reduce_sum(x, axis=axes, keepdims=True)
        count = tf.cast(tf.size(x), x.dtype) / tf.cast(tf.size(total), x.dtype)
        total, count = view.sum_over_replicas([total, count])
        mean = total / count
        # About the mean of the global batch, as tf.nn.moments does on one device: E(x^2) - E(x)^2 would cancel.
        [squares] = view.sum_over_replicas([tf.reduce_sum(tf.square(x - mean), axis=axes, keepdims=True)])
        variance = squares / count
        if keepdims:
            return mean, variance
        return tf.squeeze(mean, axes), tf.squeeze(variance, axes)

    return _compute_moments_sync


OVERRIDES = (
    Override(
        tensorflow_nn,
        "_compute_moments_sync",
        _make_compute_moments,
        "The stand-in row of a replica without rows counts in the moments; E(x^2) - E(x)^2 loses digits.",
    ),
)
