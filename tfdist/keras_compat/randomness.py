"""Random numbers within a step: independent on every replica, and reproducible from a seed.

All replicas hold the same seed state, so Keras's dropout and augmentation layers would draw the same numbers on each of
them. Here every replica but the first adds its index to the seeds that its layers draw. One replica draws what stock
Keras draws.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import SeedGenerator
from tfdist.keras_compat.step_view import ReplicaView, current_view

__all__ = ["OVERRIDES", "separate_graph_seeds"]

#: Seeds of neighbouring replicas differ by this much in their first word; layers count up in the second.
_STRIDE = 7_919


def _make_next(original: Any) -> Any:
    @functools.wraps(original)
    def next(self: Any, *args: Any, **kwargs: Any) -> Any:
        seed = original(self, *args, **kwargs)
        view = current_view()
        if not isinstance(view, ReplicaView) or view.replica_index == 0:
            return seed
        seed = tf.convert_to_tensor(seed)
        return seed + tf.cast([view.replica_index * _STRIDE, 0], seed.dtype)

    return next


def separate_graph_seeds(worker_index: int) -> None:
    """Gives operations of `tf.random` that a step is built of other seeds on every worker.

    With a global seed set (the agreed one is), TensorFlow derives their seeds from it and from their place in the
    graph, which is the same on all workers. To be called when the tracing of a step begins.
    """
    graph = tf.compat.v1.get_default_graph()
    if not tf.executing_eagerly() and graph.seed is not None:
        graph.seed += worker_index * _STRIDE


OVERRIDES = (
    Override(
        SeedGenerator,
        "next",
        _make_next,
        "Dropout and augmentation draw the same numbers on every replica.",
    ),
)
