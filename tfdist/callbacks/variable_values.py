"""The values of a model's variables: copied out, compared with a model, and assigned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.errors import CheckpointError, describe_problem
from tfdist.keras_compat.managed_strategies import is_managed, is_parameter_server, num_local_replicas
from tfdist.keras_compat.metric_logs import metric_variables
from tfdist.keras_compat.private_names import ShardedVariable, model_strategy, variable_value
from tfdist.keras_compat.step_view import CopyView, entered

__all__ = [
    "assign_metric_states",
    "assign_own_values",
    "assign_values",
    "check_fit",
    "describe_variables",
    "metric_states",
    "names_of_weights",
    "own_values",
    "values",
]

_MAX_LISTED = 20


def _variables(model: Any) -> dict[str, Any]:
    """The variables of a model and its optimizer, by name: `model/<path>` and `optimizer/<path>`."""
    metrics = set(map(id, metric_variables(model)))
    groups = {"model": [v for v in model.variables if id(v) not in metrics]}
    if getattr(model, "optimizer", None) is not None:
        groups["optimizer"] = list(model.optimizer.variables)
    named: dict[str, Any] = {}
    seen: set[int] = set()
    for group, variables in groups.items():
        for variable in variables:
            if id(variable) in seen:
                continue
            seen.add(id(variable))
            name, number = f"{group}/{variable.path}", 2
            while name in named:
                name, number = f"{group}/{variable.path}~{number}", number + 1
            named[name] = variable
    return named


def names_of_weights(model: Any) -> list[str]:
    """The names of `model.weights`, in their order."""
    name_of = {id(variable): name for name, variable in _variables(model).items()}
    return [name_of[id(variable)] for variable in model.weights if id(variable) in name_of]


def describe_variables(model: Any) -> list[list[Any]]:
    """A list of name, shape and dtype of each variable, as JSON values."""
    return [[name, list(v.shape), str(v.dtype)] for name, v in _variables(model).items()]


def values(model: Any) -> dict[str, Any]:
    """Copies the values to this process's host memory. They do not change with the variables any more.

    On CPUs this copies nothing: TensorFlow gives a variable a new buffer when it is next changed while another reads
    the old one (tensorflow/core/kernels/training_op_helpers.h, `PrepareToUpdateVariable`).
    """
    return {name: _host_value(variable, 0) for name, variable in _variables(model).items()}


def _is_synchronous(model: Any) -> bool:
    strategy = model_strategy(model)
    return is_managed(strategy) and not is_parameter_server(strategy)


def _copies(variable: Any) -> list[Any]:
    """The TensorFlow variables of this process that a Keras variable stands for."""
    value = variable_value(variable)
    return list(value.values) if isinstance(value, tf.distribute.DistributedValues) else [value]


def _host_value(variable: Any, index: int) -> Any:
    value = variable_value(variable)
    if isinstance(value, ShardedVariable):
        return tf.convert_to_tensor(value).numpy()
    value = _copies(variable)[index]
    if "/job:" in value.device and not value.device.startswith(_here()):
        return value.numpy()  # on a parameter server
    tensor = value.read_value()
    if "CPU" in tensor.device:
        return tensor
    with tf.device("CPU:0"):
        return tf.identity(tensor)


def _here() -> str:
    return tf.constant(0).device.rpartition("/device:")[0]


def own_values(model: Any) -> dict[str, Any]:
    """Values that each replica may have of its own: integers that layers assign, such as the states of their seeds."""
    if not _is_synchronous(model) or num_local_replicas(model_strategy(model)) == 0:
        return {}
    return {
        f"replica{index}/{name}": _host_value(variable, index)
        for name, variable in _variables(model).items()
        if name.startswith("model/") and _is_own(variable)
        for index in range(len(_copies(variable)))
    }


def _is_own(variable: Any) -> bool:
    is_distributed = isinstance(variable_value(variable), tf.distribute.DistributedValues)
    return is_distributed and not tf.as_dtype(variable_value(variable).dtype).is_floating


def check_fit(model: Any, described: Sequence[Sequence[Any]], origin: str) -> None:
    """Raises `CheckpointError` unless the described variables are those of the model, in order, shape and dtype.

    Names may differ: Keras numbers layers by how many there were before in the process.
    """
    now = describe_variables(model)
    if len(now) == len(described) and all(
        _group(a) == _group(b) and list(a[1:]) == list(b[1:]) for a, b in zip(now, described, strict=True)
    ):
        return
    saved_of, now_of = ({name: (shape, dtype) for name, shape, dtype in each} for each in (described, now))
    names = [name for name in {**saved_of, **now_of} if saved_of.get(name) != now_of.get(name)]
    if not names:
        names = list(now_of)  # the same ones in another order
    lines = [f"{name}: saved {_shown(saved_of.get(name))}, now {_shown(now_of.get(name))}" for name in names]
    if len(lines) > _MAX_LISTED:
        lines = [*lines[:_MAX_LISTED], f"and {len(lines) - _MAX_LISTED} more"]
    raise CheckpointError(
        describe_problem(
            "The checkpoint does not fit the model",
            received=f"{origin}, whose variables differ:\n    " + "\n    ".join(lines),
            expected="the model and optimizer that were saved; the checkpoint is left as it is",
            fix="Build the model of before, or name another directory to train from the start.",
        )
    )


def _group(description: Sequence[Any]) -> str:
    return str(description[0]).partition("/")[0]


def _shown(found: tuple[Any, Any] | None) -> str:
    return "none" if found is None else f"{tuple(found[0])} {found[1]}"


def assign_values(model: Any, described: Sequence[Sequence[Any]], tensors: dict[str, Any]) -> None:
    """Assigns what `values` returned, by the order of `describe_variables`, after `check_fit`."""
    for variable, (name, _, _) in zip(_variables(model).values(), described, strict=True):
        for index in range(len(_copies(variable))):
            _assign(model, variable, tensors[name], index)


def _assign(model: Any, variable: Any, value: Any, index: int) -> None:
    if isinstance(variable_value(variable), tf.distribute.DistributedValues):
        with entered(CopyView(model_strategy(model), index)):
            variable.assign(value)
    else:
        variable.assign(value)


def assign_own_values(model: Any, described: Sequence[Sequence[Any]], own: dict[str, Any]) -> None:
    """Assigns what `own_values` returned, to those of this process's replicas that it has values of."""
    for variable, (name, _, _) in zip(_variables(model).values(), described, strict=True):
        for index in range(len(_copies(variable))):
            if f"replica{index}/{name}" in own:
                _assign(model, variable, own[f"replica{index}/{name}"], index)


def metric_states(model: Any) -> list[list[Any]]:
    """The states of the model's metrics, on each replica of this process."""
    variables = metric_variables(model)
    if hasattr(model.train_function, "metric_totals"):
        return [model.train_function.metric_totals()]
    if not _is_synchronous(model):
        return [[_host_value(v, 0) for v in variables]]
    return [[_host_value(v, index) for v in variables] for index in range(num_local_replicas(model_strategy(model)))]


def assign_metric_states(model: Any, states: Sequence[Sequence[Any]]) -> None:
    """Assigns what `metric_states` returned, or zeros to replicas beyond it."""
    variables = metric_variables(model)
    if hasattr(model.train_function, "set_metric_totals"):
        model.train_function.set_metric_totals([np.asarray(value) for value in states[0]])
        return
    num_replicas = num_local_replicas(model_strategy(model)) if _is_synchronous(model) else 1
    for index in range(num_replicas):
        for number, variable in enumerate(variables):
            value = np.asarray(states[index][number]) if index < len(states) else np.zeros(variable.shape)
            _assign(model, variable, tf.cast(value, variable.dtype), index)
