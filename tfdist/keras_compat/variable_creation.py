"""Variables of dtypes that TensorFlow cannot broadcast between workers when they are made."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfdist.communication.carriers import carrier_of
from tfdist.keras_compat.managed_strategies import is_managed
from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import CollectiveAllReduceExtended

__all__ = ["OVERRIDES"]


def _make_initial_value(original: Any) -> Any:
    @functools.wraps(original)
    def initial_value(self: Any, *args: Any, **kwargs: Any) -> Any:
        value = kwargs.get("initial_value")
        if value is None or not is_managed(self._container_strategy()):
            return original(self, *args, **kwargs)
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


OVERRIDES = (
    Override(
        CollectiveAllReduceExtended,
        "_get_variable_creator_initial_value",
        _make_initial_value,
        "A variable of bfloat16, or of an integer other than int32 and int64, cannot be made on several workers: "
        "InvalidArgumentError from the broadcast of its initial value.",
    ),
)
