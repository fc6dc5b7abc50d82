"""Refusing metrics of the user's own whose state is no sum over rows: replicas could not add their states up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfdist.errors import UnsupportedError, describe_problem
from tfdist.keras_compat.data_flow import is_addition, key_of
from tfdist.keras_compat.private_names import nested_metrics, own_metric_variables

__all__ = ["MetricStateCheck"]


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
        self._reads.setdefault(id(variable), set()).add(key_of(value))

    def check_update(self, variable: Any, value: tf.Tensor) -> None:
        """Raises `UnsupportedError` unless `value` is the state plus something that does not depend on it."""
        reads = self._reads.get(id(variable), set())
        if is_addition(value, lambda tensor: key_of(tensor) in reads, lambda _: False):
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


def _with_nested(metric: Any) -> Iterator[Any]:
    yield metric
    for inner in nested_metrics(metric):
        yield from _with_nested(inner)


def _is_of_keras(metric: Any) -> bool:
    return type(metric).__module__.partition(".")[0] == "keras"
