"""From the states of metrics, summed over the replicas, to the logs that callbacks see."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfdist.keras_compat.private_names import compile_loss, keras_backend, tree

__all__ = ["global_logs", "metric_variables", "output_loss_variables", "own_logs", "with_metric_results"]


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


def own_logs(model: Any, logs: Any, updated: set[int]) -> list[tf.Tensor]:
    """The logs of a step that are not the results of metrics, flat and floating.

    Args:
        model: The model.
        logs: What the step returned.
        updated: Ids of the metrics' variables that the step assigned.
    """
    if isinstance(logs, dict):
        names = _metric_results(model, [v.value for v in metric_variables(model)], updated).keys()
        logs = {name: value for name, value in logs.items() if name not in names}
    tensors = [tf.convert_to_tensor(v) for v in tree.flatten(logs)]
    return [v if v.dtype.is_floating else tf.cast(v, keras_backend.floatx()) for v in tensors]


def global_logs(model: Any, structure: Any, own: list[tf.Tensor], states: list[tf.Tensor], updated: set[int]) -> Any:
    """Puts together the logs of the global batch.

    Args:
        model: The model.
        structure: The structure of the logs that the step returned.
        own: The values of `own_logs`, averaged over the rows of the global batch.
        states: The value of each of `metric_variables(model)`, summed over all replicas.
        updated: Ids of the metrics' variables that the step assigns.

    Returns:
        The logs, in the order that they had.
    """
    if not isinstance(structure, dict):
        return tree.pack_sequence_as(structure, own)
    results = _metric_results(model, states, updated)
    rest = iter(own)
    return {
        name: results[name] if name in results else tree.map_structure(lambda _: next(rest), inner)
        for name, inner in structure.items()
    }


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
    results = _metric_results(model, states, updated)
    return {name: results.get(name, value) for name, value in logs.items()}


def _metric_results(model: Any, states: list[tf.Tensor], updated: set[int]) -> dict[str, Any]:
    """The results of the metrics that a step updates, by the names that they have in its logs."""
    state_of = {id(v): state for v, state in zip(metric_variables(model), states, strict=True)}
    results: dict[str, Any] = {}
    for metric in model.metrics:
        variables = metric.variables
        if any(id(v) in updated for v in variables):
            result = metric.stateless_result([state_of[id(v)] for v in variables])
            results.update(result if isinstance(result, dict) else {metric.name: result})
    return results
