"""All that a `fit` is made of between two steps: taken out as a snapshot, and put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfdist.callbacks.callback_states import capture_callback_states, restore_callback_states
from tfdist.callbacks.random_states import capture_random_states, restore_random_states
from tfdist.callbacks.variable_values import (
    assign_metric_states,
    assign_own_values,
    assign_values,
    check_fit,
    describe_variables,
    metric_states,
    names_of_weights,
    own_values,
    values,
)
from tfdist.errors import CheckpointError, describe_problem
from tfdist.keras_compat.input_position import InputPosition, WatchedEpochs
from tfdist.keras_compat.managed_strategies import is_managed, worker_position
from tfdist.keras_compat.metric_logs import metric_variables
from tfdist.keras_compat.private_names import model_strategy
from tfdist.snapshots import RestoredCheckpoint, Snapshot

__all__ = ["FitState", "ModelFacts", "capture_fit", "restore_fit", "restore_model"]


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """What does not change while a model is trained.

    Attributes:
        variables: Name, shape and dtype of each variable of the model and the optimizer.
        weight_names: The names of `model.weights` among them.
        config: `model.to_json()`, where the model has one.
    """

    variables: list[list[Any]]
    weight_names: list[str]
    config: str | None

    @classmethod
    def of(cls, model: Any) -> ModelFacts:
        """Gathers them, once for a `fit`."""
        try:
            config = model.to_json()
        except Exception:  # a model of the user's own class need not have one
            config = None
        return cls(describe_variables(model), names_of_weights(model), config)


@dataclasses.dataclass(frozen=True)
class FitState:
    """The small facts of a `fit`, as they stand in the record of a snapshot.

    Attributes:
        fit: The number of the call of `fit` in its process, from 0, among those with the same directory.
        epoch: The epoch that training is in, or that is next.
        epoch_limit: Its argument `epochs`.
        is_complete: Whether it has ended.
        agreed_seed: The seed that tfdist drew for shuffles; None where the user set one.
        logs: The logs so far, where no step may be left of the epoch.
        variables: Name, shape and dtype of the model's and the optimizer's variables.
        position: The position in the data as JSON values; None where training has ended.
    """

    fit: int
    epoch: int
    epoch_limit: int
    is_complete: bool
    agreed_seed: int | None
    logs: dict[str, float] | None
    variables: list[list[Any]] = dataclasses.field(default_factory=list)
    position: dict[str, Any] | None = None

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> FitState:
        """Reads it from the record of a snapshot."""
        return cls(**record["fit"])


def capture_fit(
    model: Any,
    callbacks: Sequence[Any],
    epochs: WatchedEpochs | None,
    state: FitState,
    facts: ModelFacts,
    *,
    is_chief: bool,
    metrics: dict[str, float],
) -> Snapshot:
    """Copies all state to host memory. Where workers train in step, all call it at the same step.

    Args:
        model: The model.
        callbacks: The callbacks that may have a state.
        epochs: The iterator of the epoch that training is in; None where training has ended.
        state: What else there is.
        facts: What does not change.
        is_chief: Whether this worker writes what all have alike.
        metrics: The logs of the last epoch.
    """
    states = metric_states(model)  # under parameter servers, waits for the steps under way: before all else
    own = {f"replica{i}/metrics/{n}": v for i, each in enumerate(states) for n, v in enumerate(each)}
    own |= own_values(model)
    random_tensors, random_record = capture_random_states()
    own |= {f"random/{name}": value for name, value in random_tensors.items()}
    tensors: dict[str, Any] = {}
    own_record: dict[str, Any] = {"random": random_record, "num_replicas": len(states)}
    position = None
    if epochs is not None:
        found = epochs.position(with_tensors=is_chief or epochs.is_own)
        position = {"kind": found.kind, "step": found.step, "is_own": epochs.is_own, "numbers": found.numbers}
        own_record["numbers"] = found.numbers
        target = own if epochs.is_own else tensors
        target |= {f"input/{name}": value for name, value in found.tensors.items()}
    callback_tensors, callback_record = capture_callback_states(callbacks)
    if is_chief:
        tensors |= values(model)
        tensors |= {f"callbacks/{name}": value for name, value in callback_tensors.items()}
    record = {
        "fit": dataclasses.asdict(dataclasses.replace(state, variables=facts.variables, position=position)),
        "callbacks": callback_record,
        "metrics": metrics,
        "weight_names": facts.weight_names,
    }
    if facts.config is not None:
        record["model_config"] = facts.config
    return Snapshot(tensors, own, record, own_record)


def restore_model(model: Any, callbacks: Sequence[Any], snapshot: Snapshot, state: FitState, origin: str) -> None:
    """Puts back weights, optimizer and the states of callbacks.

    Raises:
        CheckpointError: They do not fit the model. Nothing is assigned.
    """
    check_fit(model, state.variables, origin)
    assign_values(model, state.variables, snapshot.tensors)
    assign_own_values(model, state.variables, snapshot.own_tensors)
    restore_callback_states(callbacks, _below("callbacks/", snapshot.tensors), snapshot.record["callbacks"])


def restore_fit(
    model: Any,
    callbacks: Sequence[Any],
    epochs: WatchedEpochs,
    *,
    snapshot: Snapshot,
    found: RestoredCheckpoint,
    state: FitState,
    origin: str,
) -> bool:
    """Puts back all that `capture_fit` copied, in the epoch that it was copied in.

    Returns:
        Whether training goes on within the epoch; else the epoch's data begin anew.

    Raises:
        CheckpointError: It does not fit the model or its data.
    """
    strategy = model_strategy(model)
    task, num_tasks = worker_position(strategy) if is_managed(strategy) else (0, 1)
    part = _Part(snapshot.own_tensors, snapshot.own_record)
    if task >= found.num_tasks:
        tensors, record = found.own_of(0)
        part = _Part({name: v for name, v in tensors.items() if not name.startswith("replica")}, record)
    restore_model(model, callbacks, dataclasses.replace(snapshot, own_tensors=part.tensors), state, origin)
    goes_on = _go_to_position(epochs, snapshot, part, state, same_tasks=found.num_tasks == num_tasks, origin=origin)
    if goes_on:
        _restore_metrics(model, part, found, task, num_tasks)
    restore_random_states(_below("random/", part.tensors), part.record["random"])
    return goes_on


@dataclasses.dataclass(frozen=True)
class _Part:
    """The own part of one worker."""

    tensors: dict[str, Any]
    record: dict[str, Any]


def _go_to_position(
    epochs: WatchedEpochs, snapshot: Snapshot, part: _Part, state: FitState, *, same_tasks: bool, origin: str
) -> bool:
    assert state.position is not None
    is_own, step = state.position["is_own"], state.position["step"]
    if is_own and not same_tasks:
        if step > 0:
            logging.warning(
                "The epoch's data begin anew: each worker had read data of its own, and there were as many workers as "
                "wrote %s, not as many as now. Rows of this epoch are trained on again.",
                origin,
            )
        return step == 0
    numbers = part.record["numbers"] if is_own else state.position["numbers"]
    tensors = _below("input/", part.tensors if is_own else snapshot.tensors)
    try:
        epochs.resume(InputPosition(state.position["kind"], step, numbers, tensors))
    except tf.errors.OpError as error:
        raise CheckpointError(
            describe_problem(
                "The position in the training data cannot be found again",
                received=f"{origin}; TensorFlow says: {error.message}",
                expected="the input pipeline that was saved: the same transformations in the same order",
                fix="Pass fit the data of before, or name another directory to train from the start.",
            )
        ) from error
    return True


def _restore_metrics(model: Any, part: _Part, found: RestoredCheckpoint, task: int, num_tasks: int) -> None:
    shapes = [tuple(v.shape) for v in metric_variables(model)]
    same_replicas = found.num_tasks == num_tasks and part.record["num_replicas"] == len(metric_states(model))
    parts = [part] if same_replicas else [_Part(*found.own_of(index)) for index in range(found.num_tasks)]
    states = [
        [each.tensors.get(f"replica{index}/metrics/{number}") for number in range(len(shapes))]
        for each in parts
        for index in range(each.record["num_replicas"])
    ]
    if any(v is None or tuple(v.shape) != shape for each in states for v, shape in zip(each, shapes, strict=True)):
        logging.warning("The metrics are not those of the checkpoint: they begin anew within the epoch.")
        return
    if not same_replicas:
        # The states of replicas are added up when they are read: the first replica of all gets the sum.
        sums = [np.sum([np.asarray(each[number]) for each in states], axis=0) for number in range(len(shapes))]
        states = [sums] if task == 0 else []
    assign_metric_states(model, states)


def _below(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
