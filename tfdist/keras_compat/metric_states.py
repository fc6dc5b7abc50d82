"""Refusing metrics of the user's own whose state is no sum over rows: replicas could not add their states up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfdist.errors import UnsupportedError, describe_problem
from tfdist.keras_compat.private_names import nested_metrics, own_metric_variables

__all__ = ["MetricStateCheck"]

_PASSED_ON = ("Identity", "Cast", "StopGradient", "EnsureShape", "Reshape")


class MetricStateCheck:
    """Looks at how a traced step updates the states of metrics that are not Keras's own.

    Every replica adds to its own states, and the sums over the replicas are the state of the global batch. That holds
    for an update `state + something` in which something does not depend on the state; all of Keras's own metrics are
    of that form. A maximum, a moving average or the last value are not.

    A step that runs eagerly leaves no graph to look at, and is not checked.

    Args:
        model: The model that is trained.
    """

    def __init__(self, model: Any) -> None:
        owners = [m for metric in model.metrics for m in _with_nested(metric) if not _is_of_keras(m)]
        self._owners = {id(v): metric for metric in owners for v in own_metric_variables(metric)}
        self._reads: dict[int, set[tuple[int, str]]] = {}

    def watches(self, variable: Any) -> bool:
        """Whether updates of the variable are checked here."""
        return id(variable) in self._owners and not tf.executing_eagerly()

    def remember_read(self, variable: Any, value: tf.Tensor) -> None:
        """Takes note that `value` is the state as the metric reads it."""
        self._reads.setdefault(id(variable), set()).add(_key(value))

    def check_update(self, variable: Any, value: tf.Tensor) -> None:
        """Raises `UnsupportedError` unless `value` is the state plus something that does not depend on it."""
        reads = self._reads.get(id(variable), set())
        if _is_addition(value, lambda tensor: _key(tensor) in reads):
            return
        metric = self._owners[id(variable)]
        raise UnsupportedError(
            describe_problem(
                f"The metric {metric.name!r} has no value over several replicas: its state is not a sum over rows",
                received=f"an update of its variable {variable.path!r} that is not an addition "
                f"(from {type(metric).__name__}.update_state)",
                expected="updates that add something which does not depend on the state, as Keras's metrics make: "
                "replicas see different rows, and their states are added up",
                fix=f"Write it as sums, with {variable.name}.assign_add(...) and the rest in result(); or compute it "
                "in a callback from model.predict().",
            )
        )


def _key(tensor: tf.Tensor) -> tuple[int, str]:
    return id(tensor.graph), tensor.name


def _with_nested(metric: Any) -> Iterator[Any]:
    yield metric
    for inner in nested_metrics(metric):
        yield from _with_nested(inner)


def _is_of_keras(metric: Any) -> bool:
    return type(metric).__module__.partition(".")[0] == "keras"


def _is_addition(value: tf.Tensor, is_state: Callable[[tf.Tensor], bool]) -> bool:
    value = _stripped(value, is_state)
    if is_state(value):
        return True
    terms = list(value.op.inputs)
    if value.op.type == "Sub":
        candidates = terms[:1]
    elif value.op.type in ("AddV2", "Add", "AddN"):
        candidates = terms
    else:
        return False
    for position, term in enumerate(candidates):
        others = terms[:position] + terms[position + 1 :]
        if _is_addition(term, is_state) and not any(_depends_on(other, is_state) for other in others):
            return True
    return False


def _stripped(tensor: tf.Tensor, is_state: Callable[[tf.Tensor], bool]) -> tf.Tensor:
    while not is_state(tensor) and tensor.op.type in _PASSED_ON:
        tensor = tensor.op.inputs[0]
    return tensor


def _depends_on(tensor: tf.Tensor, is_state: Callable[[tf.Tensor], bool]) -> bool:
    seen: set[tuple[int, str]] = set()
    to_see = [tensor]
    while to_see:
        tensor = to_see.pop()
        if is_state(tensor):
            return True
        if _key(tensor) not in seen:
            seen.add(_key(tensor))
            to_see.extend(tensor.op.inputs)
    return False
