"""The train, test and predict functions under parameter servers: steps that free workers take from the coordinator.

Each step is scheduled on whichever worker is free. What a step adds to the metrics it returns, together with its other
logs, in one vector; the coordinator adds these up. So metrics are exact however the steps overlap, and a step that is
run again because its worker was lost counts once. The number of steps under way is bounded, so that callbacks and
`stop_training` are not left behind.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfdist.errors import TimeLimitError, UnsupportedError, describe_problem
from tfdist.keras_compat.coordinator_input import CoordinatorBatches, PendingBatch, WorkerIterator
from tfdist.keras_compat.managed_strategies import cluster_of
from tfdist.keras_compat.metric_logs import metric_variables, with_metric_results
from tfdist.keras_compat.metric_states import MetricStateCheck
from tfdist.keras_compat.own_batches import relaxed
from tfdist.keras_compat.private_names import is_ready, keras_backend, tree, variable_value
from tfdist.keras_compat.row_sharding import split_batch
from tfdist.keras_compat.step_view import StepView, entered
from tfdist.keras_compat.worker_steps import HEAD, WorkerStep, counts_updates, tell_worker_step, timed_on_worker

__all__ = ["AsynchronousLogs", "make_predict_function", "make_step_function"]

_no_autograph = tf.autograph.experimental.do_not_convert

STEP_TIMEOUT_S = "TFDIST_STEP_TIMEOUT_S"
_DEFAULT_STEP_TIMEOUT_S = 1800.0
_MAX_FETCHES = 10


class _ServerView(StepView):
    """The view of a step on a worker: metrics start from zero, all else is on the parameter servers.

    A metric variable with an aggregation other than "sum" (Keras's default for metrics) cannot be added up; it stays on
    the parameter servers, where concurrent updates of it may be lost.
    """

    def __init__(self, metrics: list[Any], check: MetricStateCheck) -> None:
        self._check = check
        self._states = {id(v): tf.zeros(v.shape, variable_value(v).dtype) for v in metrics}
        self.updated: set[int] = set()

    def read(self, variable: Any) -> Any | None:
        """Returns what this step has added to a metric so far."""
        state = self._states.get(id(variable))
        if state is not None and self._check.watches(variable):
            self._check.remember_read(variable, state)
        return state

    def assign(self, variable: Any, value: tf.Tensor) -> bool:
        """Keeps the state of a metric within the step."""
        before = self._states.get(id(variable))
        if before is None:
            return False
        if self._check.watches(variable):
            self._check.check_update(variable, value)
        self._states[id(variable)] = tf.cast(value, before.dtype)
        self.updated.add(id(variable))
        return True


class _ReplicaOnWorkerView(_ServerView):
    """The same for one of several GPUs of a worker, whose batch is shared out among them."""

    def __init__(
        self, metrics: list[Any], check: MetricStateCheck, num_rows: tf.Tensor, num_rows_total: tf.Tensor
    ) -> None:
        super().__init__(metrics, check)
        self._share = (num_rows, num_rows_total)

    def scale_loss(self, value: tf.Tensor) -> tf.Tensor:
        """Weights a mean over this replica's rows by its share of the rows."""
        rows, total = (tf.cast(v, value.dtype) for v in self._share)
        return value * rows / total

    def unscale_loss(self, value: tf.Tensor) -> tf.Tensor:
        """Undoes `scale_loss`."""
        rows, total = (tf.cast(v, value.dtype) for v in self._share)
        return value * total / tf.maximum(rows, 1)


def _summable_metrics(model: Any) -> list[Any]:
    return [v for v in metric_variables(model) if v.aggregation == "sum"]


class AsynchronousLogs(Mapping[str, Any]):
    """The logs of the steps that have ended, worked out when somebody reads them."""

    def __init__(self, steps: _AsynchronousSteps) -> None:
        self._steps = steps
        self._seen = -1
        self._values: dict[str, Any] = {}

    def _current(self) -> dict[str, Any]:
        if self._seen != self._steps.num_collected:
            self._values, self._seen = self._steps.logs(), self._steps.num_collected
        return self._values

    def __getitem__(self, key: str) -> Any:
        return self._current()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())

    def final(self) -> dict[str, Any]:
        """Waits for all steps under way and returns the logs after them."""
        self._steps.collect(all_steps=True)
        self._steps.store_metrics()
        return self._steps.logs()


class _AsynchronousSteps:
    """Schedules the steps of a model and adds up what they return. Called like Keras's `train_function`."""

    def __init__(self, model: Any, step: Callable[[Any], Any]) -> None:
        self._model = model
        self._step = step
        self._strategy = model.distribute_strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._metrics = _summable_metrics(model)
        self._structure: Any = None
        self._spec: Any = None
        self._updated: set[int] = set()
        self._remote: Any = self._run_here
        if not model.run_eagerly:
            steps = tf.function(self._run_here, reduce_retracing=True)
            self._remote = tf.function(timed_on_worker(steps, self._num_updates), reduce_retracing=True)
        self._under_way: collections.deque[Any] = collections.deque()
        self.reset()

    def reset(self) -> None:
        """Starts metrics afresh. Between epochs no step is under way."""
        self._totals = [np.zeros(tuple(v.shape), np.float64) for v in self._metrics]
        self._last = np.zeros(0, np.float64)
        self._logs = AsynchronousLogs(self)
        self.num_collected = 0

    def __call__(self, iterator: Any) -> AsynchronousLogs:
        """Schedules the next `steps_per_execution` steps and returns logs of the steps that have ended."""
        if isinstance(iterator, WorkerIterator):
            if self._model.run_eagerly:
                raise _no_eager_worker_datasets()
            self._spec = None
            source = iterator.per_worker
        elif isinstance(iterator, CoordinatorBatches):
            self._spec = iterator.element_spec
            source = tuple(iterator.take(self._model.steps_per_execution))
        else:  # train_on_batch: a generator of one global batch
            self._spec = None
            batch = next(iterator)
            source = (tree.map_structure(lambda v: None if v is None else keras_backend.convert_to_tensor(v), batch),)
        self._under_way.append((source, self._schedule(source)))
        self.collect(all_steps=not isinstance(iterator, (WorkerIterator, CoordinatorBatches)))
        return self._logs

    def _schedule(self, source: Any) -> Any:
        return _schedule(self._coordinator, self._model, self._remote, source)

    @_no_autograph
    def _run_here(self, source: Any) -> tf.Tensor:
        """Runs on a worker: one step for each batch, or `steps_per_execution` steps on the worker's own iterator."""
        if isinstance(source, (tf.data.Iterator, tf.distribute.DistributedIterator)):
            source = tuple(next(source) for _ in range(self._model.steps_per_execution))
        results = [self._one_step(batch) for batch in source]
        added = [tf.add_n([states[i] for states, _ in results]) for i in range(len(self._metrics))]
        self._structure, flat = results[-1][1], tree.flatten(results[-1][1])
        return tf.concat([tf.reshape(tf.cast(v, tf.float64), [-1]) for v in [*added, *flat]], axis=0)

    def _one_step(self, batch: Any) -> tuple[list[tf.Tensor], Any]:
        num_replicas = self._strategy.num_replicas_in_sync
        if self._spec is not None:
            # Keras weighs the losses of several outputs by the rows where it knows them beforehand, as in no dataset of
            # uneven batches (keras/src/trainers/compile_utils.py, CompileLoss.call).
            batch = tree.map_structure(relaxed, batch, self._spec)
        batch = tree.map_structure(lambda v: None if isinstance(v, tf.experimental.Optional) else v, batch)
        if num_replicas == 1:
            return self._strategy.run(self._on_replica, args=(batch, None, None))
        parts, rows, total = split_batch(batch, 0, num_replicas, num_replicas)
        wrap = self._strategy.experimental_distribute_values_from_function
        outputs = self._strategy.run(
            self._on_replica,
            args=(
                wrap(lambda c: parts[c.replica_id_in_sync_group]),
                wrap(lambda c: rows[c.replica_id_in_sync_group]),
                total,
            ),
        )
        states, logs = outputs
        local = self._strategy.experimental_local_results
        return [tf.add_n(local(v)) for v in states], tree.map_structure(lambda v: local(v)[0], logs)

    @_no_autograph
    def _on_replica(self, data: Any, rows: Any, total: Any) -> tuple[list[tf.Tensor], Any]:
        check = MetricStateCheck(self._model)
        if rows is None:
            view = _ServerView(self._metrics, check)
        else:
            view = _ReplicaOnWorkerView(self._metrics, check, rows, total)
        with entered(view):
            logs = self._step(data)
            self._updated |= view.updated
            return [view.read(v) for v in self._metrics], tree.map_structure(tf.convert_to_tensor, logs)

    def collect(self, *, all_steps: bool = False) -> None:
        """Takes in the results of ended steps, waiting until few enough are under way."""
        limit = 0 if all_steps else 2 * cluster_of(self._strategy).num_workers
        while self._under_way and (len(self._under_way) > limit or self.num_collected == 0):
            source, remote = self._under_way.popleft()
            vector = _fetch(remote, self._strategy, functools.partial(self._schedule, source))
            if not self._model.run_eagerly:  # else the coordinator has made it
                head, vector = vector[: len(HEAD)], vector[len(HEAD) :]
                if self._step == self._model.train_step:
                    self._tell(*map(float, head))
            position = 0
            for total in self._totals:
                np.add(total, vector[position : position + total.size].reshape(total.shape), out=total)
                position += total.size
            self._last = vector[position:]
            self.num_collected += 1

    def _tell(self, worker: float, seconds: float, updates: float) -> None:
        steps = self._model.steps_per_execution
        step = WorkerStep(
            worker=int(worker),
            num_steps=steps,
            num_under_way=len(self._under_way),
            seconds=seconds,
            staleness=updates / steps - 1,
        )
        tell_worker_step(self._strategy, step)

    def _num_updates(self) -> tf.Tensor | None:
        """How many updates the model has had, asked within a step; None where nobody wants to know."""
        if self._step != self._model.train_step or not counts_updates(self._strategy):
            return None
        return tf.convert_to_tensor(self._model.optimizer.iterations.value)

    def logs(self) -> dict[str, Any]:
        """The logs after the steps that were taken in."""
        if self._structure is None:
            return {}
        flat, position = [], 0
        for tensor in tree.flatten(self._structure):
            size = tensor.shape.num_elements()
            flat.append(self._last[position : position + size].reshape(tuple(tensor.shape)))
            position += size
        logs = tree.pack_sequence_as(self._structure, flat)
        total_of = dict(zip(map(id, self._metrics), self._totals, strict=True))
        states = [
            tf.convert_to_tensor(total_of[id(v)], variable_value(v).dtype) if id(v) in total_of else v.value
            for v in metric_variables(self._model)
        ]
        return with_metric_results(self._model, logs, states, self._updated)

    def metric_totals(self) -> list[np.ndarray]:
        """Waits for all steps under way and returns the states of `metric_variables(model)` after them."""
        self.collect(all_steps=True)
        total_of = dict(zip(map(id, self._metrics), self._totals, strict=True))
        return [
            total_of[id(v)].copy() if id(v) in total_of else np.asarray(v.value) for v in metric_variables(self._model)
        ]

    def set_metric_totals(self, totals: list[np.ndarray]) -> None:
        """Puts states where `metric_totals` found them. No step may be under way."""
        index_of = {id(v): index for index, v in enumerate(self._metrics)}
        for variable, total in zip(metric_variables(self._model), totals, strict=True):
            if id(variable) in index_of:
                self._totals[index_of[id(variable)]] = np.array(total, np.float64)
            else:
                variable.assign(total)

    def store_metrics(self) -> None:
        """Puts the metrics' states where Keras keeps them, on the parameter servers."""
        for variable, total in zip(self._metrics, self._totals, strict=True):
            variable.assign(total)


def make_step_function(model: Any, step: Callable[[Any], Any]) -> _AsynchronousSteps:
    """Returns what Keras calls `train_function` or `test_function`, for the coordinator.

    Args:
        model: A compiled model that was made in the scope of a managed parameter-server strategy.
        step: Its `train_step` or `test_step`.
    """
    return _AsynchronousSteps(model, step)


def make_predict_function(model: Any) -> Callable[[list[Any]], Any]:
    """Returns what Keras calls `predict_function`: outputs in the order of the rows, all workers working ahead."""
    strategy = model.distribute_strategy
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @_no_autograph
    def on_replica(data: Any) -> Any:
        with entered(StepView()):
            return model.predict_step(data)

    @_no_autograph
    def one_step(batch: Any) -> Any:
        num_replicas = strategy.num_replicas_in_sync
        if num_replicas == 1:
            return strategy.run(on_replica, args=(batch,))
        parts, rows, _ = split_batch(batch, 0, num_replicas, num_replicas)
        wrap = strategy.experimental_distribute_values_from_function
        outputs = strategy.run(on_replica, args=(wrap(lambda c: parts[c.replica_id_in_sync_group]),))
        rows = tf.unstack(tf.cast(rows, tf.int32), num=num_replicas)
        return tree.map_structure(
            lambda v: tf.concat(
                [part[:n] for part, n in zip(strategy.experimental_local_results(v), rows, strict=True)], axis=0
            ),
            outputs,
        )

    remote = one_step if model.run_eagerly else tf.function(one_step, reduce_retracing=True)

    def schedule(data: Any) -> Any:
        return _schedule(coordinator, model, remote, data)

    def result(item: Any) -> Any:
        if not isinstance(item, PendingBatch):
            return _fetch(schedule(item), strategy, lambda: schedule(item))
        for batch in (item, *item.following):
            if batch.remote is None:
                batch.remote = schedule(batch.data)
        return _fetch(item.remote, strategy, lambda: schedule(item.data))

    def function(items: list[Any]) -> Any:
        outputs = [tree.map_structure(tf.convert_to_tensor, result(item)) for item in items]
        return tree.map_structure(lambda *v: v[0] if len(v) == 1 else tf.concat(v, axis=0), *outputs)

    return function


def _schedule(coordinator: Any, model: Any, function: Any, argument: Any) -> Any:
    if model.run_eagerly:
        return _Done(function(argument))
    return coordinator.schedule(function, args=(argument,))


def _no_eager_worker_datasets() -> UnsupportedError:
    return UnsupportedError(
        describe_problem(
            "Steps that run eagerly cannot read a dataset function under parameter servers",
            received="run_eagerly=True (from compile) and a dataset function (from the call)",
            expected="a compiled step, which runs where the worker's dataset is; eager steps run on the coordinator",
            fix="Leave run_eagerly off, or pass the dataset itself.",
        )
    )


class _Done:
    """The result of a step that the coordinator ran itself (`run_eagerly`)."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _fetch(remote: Any, strategy: tf.distribute.Strategy, again: Callable[[], Any]) -> Any:
    """Waits for a scheduled step and returns its result as NumPy arrays.

    Args:
        remote: The scheduled step.
        strategy: The strategy.
        again: Schedules it anew, for when its worker is lost with the result.
    """
    if isinstance(remote, _Done):
        return tree.map_structure(lambda v: v.numpy(), remote.value)
    for _ in range(_MAX_FETCHES - 1):
        _wait(remote, strategy)
        try:
            return remote.fetch()
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
            logging.warning("A worker was lost with the result of a step, which is run again: %s", type(error).__name__)
            remote = again()
    _wait(remote, strategy)
    return remote.fetch()


def _wait(remote: Any, strategy: tf.distribute.Strategy) -> None:
    limit_s = float(os.environ.get(STEP_TIMEOUT_S, _DEFAULT_STEP_TIMEOUT_S))
    if not is_ready(remote, limit_s):
        raise TimeLimitError(
            describe_problem(
                "No worker has finished a step within the limit",
                received=f"nothing for {limit_s:g} seconds from {', '.join(cluster_of(strategy).worker_addresses)}",
                expected=f"a step within {STEP_TIMEOUT_S}={limit_s:g} seconds",
                fix="Look at the logs of the worker and ps tasks; raise the limit if a step may take longer.",
            )
        )
