"""Keras variables within a step: which TensorFlow variable they read and assign."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import (
    ShardedVariable,
    TensorFlowVariable,
    in_stateless_scope,
    variable_value,
)
from tfdist.keras_compat.step_view import current_view

__all__ = ["OVERRIDES"]


def _make_value(original: Any) -> property:
    def value(self: Any) -> Any:
        """The value of the variable, in a step that of the current replica."""
        view = current_view()
        if view is not None and not in_stateless_scope():
            seen = view.read(self)
            if seen is not None:
                return self._maybe_autocast(seen)
        if isinstance(variable_value(self), ShardedVariable) and not in_stateless_scope():
            return self._maybe_autocast(tf.convert_to_tensor(variable_value(self)))
        return original.fget(self)

    return property(value)


def _make_direct_assign(original: Any) -> Any:
    @functools.wraps(original)
    def _direct_assign(self: Any, value: Any) -> None:
        view = current_view()
        if view is None or not view.assign(self, value):
            original(self, value)

    return _direct_assign


def _make_in_place(name: str) -> Any:
    """Makes `assign_add` or `assign_sub` one operation, where Keras reads, adds and assigns."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def in_place(self: Any, value: Any) -> Any:
            view = current_view()
            if view is None or view.updates_alone or in_stateless_scope() or view.read(self) is not None:
                return original(self, value)
            target = variable_value(self)
            return getattr(target, name)(tf.cast(value, target.dtype))

        return in_place

    return make


def _make_number(kind: type) -> Any:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def number(self: Any) -> Any:
            if isinstance(variable_value(self), tf.distribute.DistributedValues):
                return kind(self.numpy().item())
            return original(self)

        return number

    return make


OVERRIDES = (
    *(
        Override(
            TensorFlowVariable,
            f"__{kind.__name__}__",
            _make_number(kind),
            "`int(optimizer.iterations)` raises TypeError.",
        )
        for kind in (int, float)
    ),
    Override(
        TensorFlowVariable,
        "value",
        _make_value,
        "A Keras variable reads a distributed variable, which a layer then cannot assign in replica context; one that "
        "is partitioned has neither `handle` nor `numpy`.",
    ),
    Override(
        TensorFlowVariable,
        "_direct_assign",
        _make_direct_assign,
        "Assigning a variable in a layer's `call` raises, or leaves workers with different values.",
    ),
    Override(
        TensorFlowVariable,
        "assign_add",
        _make_in_place("assign_add"),
        "`assign(value + delta)` loses concurrent updates under parameter servers (keras issue 18624).",
    ),
    Override(
        TensorFlowVariable,
        "assign_sub",
        _make_in_place("assign_sub"),
        "`assign(value - delta)` loses concurrent updates under parameter servers (keras issue 18624).",
    ),
)
