"""Variables that a partitioner splits over several parameter servers (`ShardedVariable`).

For Keras such a variable is one: it reads as the dense tensor, is saved and loaded whole, and has one gradient. Below
that, lookups go to the shards that hold the rows, gradients are taken of the shards, and optimizers update each shard
where it lives.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import ShardedVariable, TensorFlowVariable, tensorflow_numpy, variable_value

__all__ = ["OVERRIDES", "shards_of", "split_gradient"]


def shards_of(variable: Any) -> list[tf.Variable]:
    """The shards of a Keras variable, along its first axis; empty when it is not partitioned."""
    value = variable_value(variable) if isinstance(variable, TensorFlowVariable) else None
    return list(value.variables) if isinstance(value, ShardedVariable) else []


def _make_take(original: Any) -> Any:
    @functools.wraps(original)
    def take(x: Any, indices: Any, axis: int | None = None) -> Any:
        shards = shards_of(x)
        if not shards or axis != 0 or isinstance(indices, tf.SparseTensor):
            return original(x, indices, axis=axis)
        if isinstance(indices, tf.RaggedTensor):
            return indices.with_values(take(x, indices.values, axis))
        indices = tf.convert_to_tensor(indices)
        num_rows = tf.cast(x.shape[0], indices.dtype)
        indices = tf.where(indices < 0, indices + num_rows, indices)
        # TensorFlow partitions in contiguous runs, the first ones a row longer: the strategy "div".
        return x._maybe_autocast(tf.nn.embedding_lookup(variable_value(x), indices))

    return take


def _make_gradient(original: Any) -> Any:
    @functools.wraps(original)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        flat = tf.nest.flatten(sources)
        if not any(shards_of(source) for source in flat):
            return original(self, target, sources, *args, **kwargs)
        expanded = [shards_of(source) or source for source in flat]
        gradients = original(self, target, expanded, *args, **kwargs)
        joined = [
            _join(found, source) if shards_of(source) else found for found, source in zip(gradients, flat, strict=True)
        ]
        return tf.nest.pack_sequence_as(sources, joined)

    return gradient


def _join(gradients: list[Any], variable: Any) -> Any:
    """Makes one gradient of those of the shards: sparse if all are, `None` if all are."""
    shards = shards_of(variable)
    if all(g is None for g in gradients):
        return None
    if all(isinstance(g, tf.IndexedSlices) for g in gradients):
        starts = _starts(shards)
        return tf.IndexedSlices(
            tf.concat([g.values for g in gradients], axis=0),
            tf.concat(
                [g.indices + tf.cast(s, g.indices.dtype) for g, s in zip(gradients, starts, strict=True)], axis=0
            ),
            tf.constant(variable.shape.as_list(), gradients[0].indices.dtype),
        )
    dense = [tf.zeros(s.shape, s.dtype) if g is None else g for g, s in zip(gradients, shards, strict=True)]
    return tf.concat([tf.convert_to_tensor(g) for g in dense], axis=0)


def _starts(shards: list[tf.Variable]) -> list[int]:
    starts = [0]
    for shard in shards[:-1]:
        starts.append(starts[-1] + shard.shape[0])
    return starts


def split_gradient(gradient: Any, variable: Any) -> list[Any]:
    """Splits a gradient of a partitioned variable into those of its shards."""
    shards = shards_of(variable)
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.split(gradient, [shard.shape[0] for shard in shards], axis=0)
    pieces = []
    for shard, start in zip(shards, _starts(shards), strict=True):
        here = (gradient.indices >= start) & (gradient.indices < start + shard.shape[0])
        indices = tf.boolean_mask(gradient.indices, here) - tf.cast(start, gradient.indices.dtype)
        values = tf.boolean_mask(gradient.values, here)
        pieces.append(tf.IndexedSlices(values, indices, tf.constant(shard.shape.as_list(), indices.dtype)))
    return pieces


OVERRIDES = (
    Override(
        tensorflow_numpy,
        "take",
        _make_take,
        "A lookup in a partitioned embedding table reads the whole table.",
    ),
    Override(
        tf.GradientTape,
        "gradient",
        _make_gradient,
        "A Keras variable that is partitioned over parameter servers has no `handle`, so no gradient.",
    ),
)
