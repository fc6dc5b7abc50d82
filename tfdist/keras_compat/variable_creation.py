"""The initial value of a variable, where TensorFlow does not bring the chief's to all workers.

That is so for some dtypes, and in an elastic job, whose processes are no cluster of TensorFlow's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.communication.carriers import carrier_of
from tfdist.communication.elastic import ElasticTransport
from tfdist.keras_compat.elastic_operations import perform
from tfdist.keras_compat.managed_strategies import elastic_group, is_managed
from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import CollectiveAllReduceExtended

__all__ = ["OVERRIDES"]


def _make_initial_value(original: Any) -> Any:
    @functools.wraps(original)
    def initial_value(self: Any, *args: Any, **kwargs: Any) -> Any:
        value = kwargs.get("initial_value")
        if value is None or not is_managed(self._container_strategy()):
            return original(self, *args, **kwargs)
        group = elastic_group(self._container_strategy())
        if group is not None:
            return _of_the_first_member(group, value, kwargs.get("dtype"))
        dtype = kwargs.get("dtype")
        if dtype is None and not callable(value):
            dtype = tf.convert_to_tensor(value).dtype
        carrier = None if dtype is None else carrier_of(tf.as_dtype(dtype))
        if carrier is None:
            return original(self, *args, **kwargs)
        dtype = tf.as_dtype(dtype)

        def carried() -> tf.Tensor:
            own = value() if callable(value) else value
            return tf.cast(tf.convert_to_tensor(own, dtype=dtype), carrier)

        received = original(self, *args, **{**kwargs, "initial_value": carried, "dtype": carrier})
        return lambda: tf.cast(received(), dtype)

    return initial_value


def _of_the_first_member(group: ElasticTransport, value: Any, dtype: Any) -> Callable[[], tf.Tensor]:
    """The value of the first member, for all. Collective, but for a newcomer, who is given all values later."""

    def received() -> tf.Tensor:
        own = tf.convert_to_tensor(value() if callable(value) else value, dtype=dtype)
        if group.is_newcomer or own.dtype == tf.string:
            return own

        def broadcast() -> tf.Tensor:
            array = own.numpy()
            sent = array.tobytes() if group.rank == 0 else b""
            first = group.all_gather(np.frombuffer(sent, np.uint8))[0]
            return tf.constant(np.frombuffer(first.tobytes(), array.dtype).reshape(array.shape))

        return perform(group, broadcast)

    return received


OVERRIDES = (
    Override(
        CollectiveAllReduceExtended,
        "_get_variable_creator_initial_value",
        _make_initial_value,
        "A variable of bfloat16, or of an integer other than int32 and int64, cannot be made on several workers: "
        "InvalidArgumentError from the broadcast of its initial value.",
    ),
)
