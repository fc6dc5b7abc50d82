"""From the states of metrics, summed over the replicas, to the logs that callbacks see."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfdist.keras_compat.private_names import compile_loss

__all__ = ["metric_variables", "output_loss_variables", "with_metric_results"]


def metric_variables(model: Any) -> list[Any]:
    """The Keras variables of all metrics of a model, in a fixed order."""
    seen: dict[int, Any] = {}
    for metric in model.metrics:
        for variable in metric.variables:
            seen.setdefault(id(variable), variable)
    return list(seen.values())


def output_loss_variables(model: Any) -> set[int]:
    """Ids of the variables that count the losses of a model's several outputs."""
    compiled = compile_loss(model)
    return set() if compiled is None else {id(v) for metric in compiled.metrics for v in metric.variables}


def with_metric_results(model: Any, logs: Any, states: list[tf.Tensor], updated: set[int]) -> Any:
    """Replaces in `logs` the values of metrics by those of the global state.

    Args:
        model: The model.
        logs: What the step returned. What is not the result of a metric stays.
        states: The value of each of `metric_variables(model)`, summed over all replicas.
        updated: Ids of the variables that the step assigned. A metric that it never updated does not speak.

    Returns:
        The logs, in the order that they had.
    """
    if not isinstance(logs, dict):
        return logs
    state_of = {id(v): state for v, state in zip(metric_variables(model), states, strict=True)}
    results: dict[str, Any] = {}
    for metric in model.metrics:
        variables = metric.variables
        if not any(id(v) in updated for v in variables):
            continue
        result = metric.stateless_result([state_of[id(v)] for v in variables])
        results.update(result if isinstance(result, dict) else {metric.name: result})
    return {name: results.get(name, value) for name, value in logs.items()}
