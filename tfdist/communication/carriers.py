"""Dtypes that TensorFlow's collectives lack, and those that carry their values."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["carrier_of"]

#: What broadcasts and gathers of tensorflow/core/ops/collective_ops.cc lack -> what holds all its values.
_CARRIERS = {
    tf.bool: tf.int32,
    tf.bfloat16: tf.float32,
    tf.uint8: tf.int32,
    tf.int8: tf.int32,
    tf.uint16: tf.int32,
    tf.int16: tf.int32,
    tf.uint32: tf.int64,
    tf.uint64: tf.int64,  # wraps around, and back
}


def carrier_of(dtype: tf.DType) -> tf.DType | None:
    """The dtype to cast to before a collective, and back from after it; `None` where none is needed or known."""
    return _CARRIERS.get(dtype)
