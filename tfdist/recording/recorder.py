"""Watches a `fit`: what each replica hands to the optimizer, what the exchange makes of it, seeds, logs and weights.

Values inside a step are taken out of the graph with `tf.numpy_function`, so the step is traced and run as ever.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdist.keras_compat.managed_strategies import is_managed, num_local_replicas, worker_position
from tfdist.keras_compat.private_names import (
    BaseOptimizer,
    LossScaleOptimizer,
    SeedGenerator,
    flat_layers,
    model_strategy,
    seed_generators,
    trained_variables,
    variable_value,
)
from tfdist.keras_compat.step_view import ReplicaView, current_view
from tfdist.verification.record import INITIAL, Key, ModelFacts, RunRecord

__all__ = ["Recorder", "model_facts"]

_no_autograph = tf.autograph.experimental.do_not_convert


class _PerThread(threading.local):
    variables: list[Any] | None = None  # those of the optimizer's `apply` that this thread is in


class Recorder:
    """Collects the record of one `fit`.

    Args:
        model: The compiled model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        strategy = model_strategy(model)
        self.strategy = strategy if is_managed(strategy) else None
        self.first_replica = 0
        if self.strategy is not None:
            self.first_replica = worker_position(self.strategy)[0] * num_local_replicas(self.strategy)
        self.record = RunRecord(ModelFacts())
        self.step = 0
        self._per_thread = _PerThread()
        self._owner_of = {
            id(generator): layer.name for layer in flat_layers(model) for generator in seed_generators(layer)
        }

    def note(self, kind: str, name: str, place: int, value: Any) -> None:
        """Adds a number of the current step; a second one of the same name gets a name of its own."""
        key = Key(self.step, kind, name, place)
        count = 2
        while key in self.record.values:
            key = key._replace(name=f"{name}#{count}")
            count += 1
        array = np.array(value)
        if array.dtype.kind == "V":  # such as bfloat16, which no file of NumPy's knows
            array = array.astype(np.float32)
        self.record.values[key] = array

    def _note_in_step(self, kind: str, name: str, place: int, value: Any) -> None:
        def note(array: np.ndarray[Any, Any]) -> None:
            self.note(kind, name, place, array)

        tf.numpy_function(note, [tf.convert_to_tensor(value)], [])

    @property
    def _place(self) -> int:
        view = current_view()
        return view.replica_index if isinstance(view, ReplicaView) else self.first_replica

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While `fit` runs."""
        with contextlib.ExitStack() as stack:
            for owner in (BaseOptimizer, LossScaleOptimizer):
                stack.enter_context(_replaced(owner, "apply", self._make_apply))
            stack.enter_context(_replaced(ReplicaView, "reduce_gradients", self._make_reduce_gradients))
            stack.enter_context(_replaced(SeedGenerator, "next", self._make_next))
            yield

    def _make_apply(self, original: Any) -> Any:
        @functools.wraps(original)
        @_no_autograph
        def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            if self._per_thread.variables is not None:  # a part of an `apply` that is noted
                return original(optimizer, grads, trainable_variables)
            grads = list(grads)
            if trainable_variables is None:
                variables = trained_variables(optimizer)
            else:
                trainable_variables = variables = list(trainable_variables)
            # On one device what the replica has is what the optimizer sees.
            kind = "local_gradient" if isinstance(current_view(), ReplicaView) else "gradient"
            self._note_gradients(kind, grads, variables)
            self._per_thread.variables = variables
            try:
                return original(optimizer, grads, trainable_variables)
            finally:
                self._per_thread.variables = None

        return apply

    def _make_reduce_gradients(self, original: Any) -> Any:
        @functools.wraps(original)
        def reduce_gradients(view: Any, gradients: Any) -> Any:
            reduced = original(view, gradients)
            self._note_gradients("gradient", reduced, self._per_thread.variables or [])
            return reduced

        return reduce_gradients

    def _note_gradients(self, kind: str, gradients: list[Any], variables: list[Any]) -> None:
        for gradient, variable in zip(gradients, variables, strict=False):
            if gradient is not None:
                self._note_in_step(kind, variable.path, self._place, gradient)

    def _make_next(self, original: Any) -> Any:
        @functools.wraps(original)
        def next(generator: Any, *args: Any, **kwargs: Any) -> Any:
            seed = original(generator, *args, **kwargs)
            if isinstance(current_view(), ReplicaView) and tf.is_tensor(seed):
                owner = self._owner_of.get(id(generator), generator.state.path)
                self._note_in_step("seed", owner, self._place, seed)
            return seed

        return next

    def callback(self, initial: dict[str, np.ndarray[Any, Any]] | None) -> keras.callbacks.Callback:
        """Makes the callback that counts steps and notes logs and weights.

        Args:
            initial: Weights to start from, by name; None to start from the model's own.
        """
        return _RecordingCallback(self, initial)

    def note_variables(self) -> None:
        """Notes every copy of every weight that this process holds."""
        for name, variable in self.named_variables():
            kind = "weight" if variable.trainable else "state"
            for index, value in enumerate(self._copies(variable)):
                self.note(kind, name, self.first_replica + index, value.numpy())

    def named_variables(self) -> Iterator[tuple[str, Any]]:
        """The model's variables that are compared. Of several with the same path, each has a name of its own."""
        counts: dict[str, int] = {}
        for variable in self.model.weights:
            path = variable.path
            if "seed_generator" in path:
                continue
            counts[path] = counts.get(path, 0) + 1
            yield path if counts[path] == 1 else f"{path}#{counts[path]}", variable

    def _copies(self, variable: Any) -> tuple[Any, ...]:
        value = variable_value(variable)
        return (value,) if self.strategy is None else self.strategy.experimental_local_results(value)


class _RecordingCallback(keras.callbacks.Callback):
    def __init__(self, recorder: Recorder, initial: dict[str, np.ndarray[Any, Any]] | None) -> None:
        super().__init__()
        self._recorder, self._initial = recorder, initial

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Sets the weights, and notes them."""
        if self._initial is not None:
            for name, variable in self._recorder.named_variables():
                if name in self._initial and self._initial[name].shape == tuple(variable.shape):
                    variable.assign(self._initial[name])
        self._recorder.step = INITIAL
        self._recorder.note_variables()
        self._recorder.step = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes what the step came to."""
        del batch
        recorder = self._recorder
        for name, value in (logs or {}).items():
            recorder.note("log", name, recorder.first_replica, value)
        recorder.note_variables()
        recorder.step += 1


@contextlib.contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    own = vars(owner).get(name)
    setattr(owner, name, make(getattr(owner, name)))
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def _precision(dtype: str | None) -> float:
    found = tf.as_dtype(dtype or "float32")
    return float(np.finfo(found.as_numpy_dtype).eps) if found in (tf.float16, tf.float32, tf.float64) else 2.0**-7


def _settings(optimizer: Any) -> dict[str, str]:
    config = optimizer.get_config()
    return {name: json.dumps(value, default=str, sort_keys=True) for name, value in config.items() if name != "name"}


def model_facts(model: Any) -> ModelFacts:
    """What the comparison wants to know of a model besides its numbers."""
    strategy = model_strategy(model)
    replicas = 1 if strategy is None or not is_managed(strategy) else strategy.num_replicas_in_sync
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    clipping = [
        f"{name}={getattr(optimizer, name)}"
        for name in ("clipnorm", "clipvalue", "global_clipnorm")
        if getattr(optimizer, name, None) is not None
    ]
    own_step = type(model).train_step not in (keras.Model.train_step, keras.Sequential.train_step)
    layers = [
        layer.name
        for layer in flat_layers(model)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable and not layer.synchronized
    ]
    return ModelFacts(
        replicas=replicas,
        workers=1 if replicas == 1 else worker_position(strategy)[1],
        settings=_settings(model.optimizer),
        optimizer=type(optimizer).__name__,
        clipping=", ".join(clipping),
        train_step=type(model).__name__ if own_step else "",
        batch_statistics=tuple(layers),
        precision=max(_precision(layer.compute_dtype) for layer in flat_layers(model)),
    )
