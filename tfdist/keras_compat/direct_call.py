"""Calling a traced step without looking it up at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdist.keras_compat.private_names import bound_call

__all__ = ["DirectCall"]


class DirectCall:
    """A `tf.function` of an iterator, whose trace is looked up once an iterator.

    `tf.function` works out the types of its arguments and compares them with those of its traces at every call. From
    step to step the iterator is the same object, and so is the trace: it is called with what was bound to it before.

    Args:
        function: Takes an iterator. It is traced as `tf.function` would.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = tf.function(function, reduce_retracing=True)
        self._iterator: Any = None
        self._call: Callable[[], Any] | None = None

    def __call__(self, iterator: Any) -> Any:
        """Runs the function on `iterator`, traced if it has to be."""
        if tf.config.functions_run_eagerly():
            return self._function(iterator)
        if self._call is None or iterator is not self._iterator:
            results = self._function(iterator)
            self._call = bound_call(self._function.get_concrete_function(iterator), iterator)
            self._iterator = iterator
            return results
        return self._call()

    def release(self) -> None:
        """Forgets the iterator, which would otherwise be kept, and with it what it has read ahead."""
        self._iterator = None
        self._call = None
