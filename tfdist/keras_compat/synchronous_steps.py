"""The train, test and predict functions under a synchronous strategy: one step on all replicas.

Within `strategy.run` each replica executes the model's own `train_step` under a `ReplicaView`. Two exchanges cross the
replicas: the gradients (in the optimizer), and one small one with the metrics' states and what layers assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from tfdist.communication import all_reduce_sum
from tfdist.keras_compat.managed_strategies import num_local_replicas, worker_position
from tfdist.keras_compat.metric_logs import metric_variables, output_loss_variables, with_metric_results
from tfdist.keras_compat.metric_states import MetricStateCheck
from tfdist.keras_compat.own_batches import counted_together
from tfdist.keras_compat.private_names import keras_backend, tree, variable_value
from tfdist.keras_compat.randomness import separate_graph_seeds
from tfdist.keras_compat.row_sharding import split_batch
from tfdist.keras_compat.step_view import ReplicaView, entered

__all__ = ["make_predict_function", "make_step_function"]

_no_autograph = tf.autograph.experimental.do_not_convert


def _without_optionals(data: Any) -> Any:
    return tree.map_structure(lambda v: None if isinstance(v, tf.experimental.Optional) else v, data)


def _may_be_empty(data: Any) -> bool:
    """Whether the replica's batch may be a stand-in: its number of rows was not known when the pipeline was built."""
    leaves = [leaf for leaf in tree.flatten(data) if getattr(leaf, "shape", None) is not None]
    return isinstance(leaves[0], tf.SparseTensor) or leaves[0].shape[0] is None


def _per_replica(strategy: tf.distribute.Strategy, parts: tuple[Any, ...], num_rows: tf.Tensor) -> tuple[Any, Any, Any]:
    """Wraps local parts as values that `strategy.run` hands to the replicas, with their row counts and indices."""
    first = worker_position(strategy)[0] * num_local_replicas(strategy)
    wrap = strategy.experimental_distribute_values_from_function
    return (
        wrap(lambda context: parts[context.replica_id_in_sync_group - first]),
        wrap(lambda context: num_rows[context.replica_id_in_sync_group - first]),
        wrap(lambda context: context.replica_id_in_sync_group - first),
    )


class _SynchronousStep:
    """One step of a model on all replicas of this process, in cross-replica context."""

    def __init__(self, model: Any, step: Callable[[Any], Any]) -> None:
        self.model = model
        self.step = step
        self.strategy = model.distribute_strategy

    @_no_autograph
    def __call__(self, element: tuple[Any, tf.Tensor, tf.Tensor]) -> dict[str, Any]:
        """Runs the step on one element of the input pipeline (see row_sharding.py) and returns the global logs."""
        separate_graph_seeds(worker_position(self.strategy)[0])
        parts, num_rows, num_rows_global = element
        updated: set[int] = set()

        @_no_autograph
        def on_replica(data: Any, rows: tf.Tensor, local_index: Any) -> tuple[Any, list[tf.Tensor]]:
            return self._on_replica(_without_optionals(data), rows, num_rows_global, int(local_index), updated)

        outputs = self.strategy.run(on_replica, args=_per_replica(self.strategy, parts, num_rows))
        logs, states = tree.map_structure(lambda v: self.strategy.experimental_local_results(v)[0], outputs)
        return with_metric_results(self.model, logs, states, updated)

    def _on_replica(
        self, data: Any, rows: tf.Tensor, rows_global: tf.Tensor, local_index: int, updated: set[int]
    ) -> tuple[Any, list[tf.Tensor]]:
        view = ReplicaView(
            self.strategy,
            local_index,
            rows,
            rows_global,
            may_be_empty=_may_be_empty(data),
            metric_states=MetricStateCheck(self.model),
        )
        metrics = metric_variables(self.model)
        output_losses = output_loss_variables(self.model)
        with entered(view):
            # A stand-in row must not count, but in the losses of several outputs it weighs 0 (see unscale_loss).
            counted = [v for v in metrics if id(v) not in output_losses] if view.may_be_empty else []
            before = [tf.identity(v.value) for v in counted]
            logs = self.step(data)
            self._warn_of_unweighted_loss(view)
            updated.update(id(v) for v in metrics if id(v) in view.assigned)
            for variable, value in zip(counted, before, strict=True):
                view.put_back(variable, tf.where(rows > 0, variable.value, value))
            return self._exchange(view, logs, metrics)

    def _warn_of_unweighted_loss(self, view: ReplicaView) -> None:
        overridden = getattr(self.step, "__func__", None) is not keras.Model.train_step
        if view.num_reductions and not view.num_scaled_losses and overridden:
            logging.log_first_n(
                logging.WARNING,
                "train_step of %s computes a loss without Keras's losses, so its gradients were summed over %d "
                "replicas as they are. Pass a loss that is a mean over rows through tfdist.scale_loss first.",
                1,
                type(self.model).__name__,
                self.strategy.num_replicas_in_sync,
            )

    def _exchange(self, view: ReplicaView, logs: Any, metrics: list[Any]) -> tuple[Any, list[tf.Tensor]]:
        """Sums metric states; averages over rows the step's other logs and what its layers assigned."""
        own = {id(v) for v in metrics}
        assigned = [
            v for v in view.assigned.values() if id(v) not in own and tf.as_dtype(variable_value(v).dtype).is_floating
        ]
        flat_logs = [tf.convert_to_tensor(v) for v in tree.flatten(logs)]
        flat_logs = [v if v.dtype.is_floating else tf.cast(v, keras_backend.floatx()) for v in flat_logs]
        weighted = [v * tf.cast(view.num_rows, v.dtype) for v in [*flat_logs, *(v.value for v in assigned)]]
        if view.may_be_empty:
            weighted = [tf.where(view.num_rows > 0, v, tf.zeros_like(v)) for v in weighted]
        sums = all_reduce_sum([*(tf.convert_to_tensor(v.value) for v in metrics), *weighted])
        states, means = sums[: len(metrics)], sums[len(metrics) :]
        means = [v / tf.cast(view.num_rows_global, v.dtype) for v in means]
        for variable, mean in zip(assigned, means[len(flat_logs) :], strict=True):
            variable.assign(mean)
        return tree.pack_sequence_as(logs, means[: len(flat_logs)]), states


def make_step_function(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """Returns what Keras calls `train_function` or `test_function`.

    Args:
        model: A compiled model that was made in the scope of a managed synchronous strategy.
        step: Its `train_step` or `test_step`.

    Returns:
        A function of an iterator of the input pipeline (or of a generator of global batches) that runs
        `steps_per_execution` steps and returns the logs after the last one. Every worker must call it, as often as the
        others. It raises `tf.errors.OutOfRangeError` or `StopIteration` at the end of the data.
    """
    one_step = _SynchronousStep(model, step).__call__
    steps = model.steps_per_execution
    if model.jit_compile:
        logging.log_first_n(
            logging.WARNING,
            "jit_compile=True is not used under %s: XLA cannot compile the exchange between replicas.",
            1,
            type(model.distribute_strategy).__name__,
        )
    if not model.run_eagerly:
        one_step = tf.function(one_step, reduce_retracing=True)

    @_no_autograph
    def run_steps(iterator: tf.data.Iterator) -> dict[str, Any]:
        logs = one_step(next(iterator))
        return logs if steps == 1 else _loop(one_step, iterator, logs, steps)

    if not model.run_eagerly:
        run_steps = tf.function(run_steps, reduce_retracing=True)

    def function(iterator: Any) -> dict[str, Any]:
        strategy = model.distribute_strategy
        if not isinstance(iterator, tf.data.Iterator):
            return one_step(_split_for_this_worker(strategy, next(iterator)))
        if len(iterator.element_spec) == 2:
            return _run_one_by_one(one_step, counted_together(strategy, iterator), steps)
        return _run_one_by_one(one_step, iterator, steps) if model.run_eagerly else run_steps(iterator)

    return function


def _run_one_by_one(one_step: Any, elements: Iterator[Any], steps: int) -> dict[str, Any]:
    """Runs up to `steps` steps; raises `StopIteration` when there is no element for the first."""
    logs = one_step(next(elements))
    for _, element in zip(range(steps - 1), elements, strict=False):
        logs = one_step(element)
    return logs


def _loop(one_step: Any, iterator: tf.data.Iterator, logs: dict[str, Any], steps: int) -> dict[str, Any]:
    """Runs up to `steps - 1` further steps in the graph, ending early with the data."""
    empty = tf.experimental.Optional.empty(iterator.element_spec)

    def following(step: tf.Tensor) -> tf.experimental.Optional:
        return tf.cond(step < steps, iterator.get_next_as_optional, lambda: empty)

    @_no_autograph
    def body(step: tf.Tensor, element: tf.experimental.Optional, _: Any) -> tuple[Any, Any, Any]:
        outputs = one_step(element.get_value())
        return step + 1, following(step + 1), outputs

    @_no_autograph
    def go_on(_: tf.Tensor, element: tf.experimental.Optional, __: Any) -> tf.Tensor:
        return element.has_value()

    first = tf.constant(1)
    return tf.while_loop(go_on, body, [first, following(first), logs])[2]


def _split_for_this_worker(strategy: tf.distribute.Strategy, batch: Any) -> tuple[Any, Any, Any]:
    """Takes this worker's share of one global batch, for `train_on_batch` and its like."""
    batch = tree.map_structure(lambda v: None if v is None else keras_backend.convert_to_tensor(v), batch)
    num_local = num_local_replicas(strategy)
    first = worker_position(strategy)[0] * num_local
    return split_batch(batch, first, num_local, strategy.num_replicas_in_sync)


def make_predict_function(model: Any) -> Callable[[list[Any]], Any]:
    """Returns what Keras calls `predict_function`.

    Returns:
        A function of a list of elements of the input pipeline that returns the model's outputs for all rows of those
        global batches, in order, on every worker. Every worker must call it, as often as the others.
    """
    strategy = model.distribute_strategy
    num_workers = worker_position(strategy)[1]

    @_no_autograph
    def on_replica(data: Any, rows: tf.Tensor, local_index: Any) -> Any:
        data = _without_optionals(data)
        view = ReplicaView(strategy, int(local_index), rows, rows, may_be_empty=_may_be_empty(data))
        with entered(view):
            outputs = model.predict_step(data)
        return tree.map_structure(lambda v: v[: tf.cast(rows, tf.int32)], outputs)

    @_no_autograph
    def one_step(element: tuple[Any, ...]) -> Any:
        parts, num_rows = element[:2]
        outputs = strategy.run(on_replica, args=_per_replica(strategy, parts, num_rows))
        local = tree.map_structure(lambda v: tf.concat(strategy.experimental_local_results(v), axis=0), outputs)
        return local if num_workers == 1 else tree.map_structure(lambda v: _gather_workers(strategy, v), local)

    if not model.run_eagerly:
        one_step = tf.function(one_step, reduce_retracing=True)

    def function(elements: list[Any]) -> Any:
        if len(elements) == 1 and len(elements[0]) == 1:  # predict_on_batch: [(x,)]
            elements = [_split_for_this_worker(strategy, elements[0])]
        outputs = [one_step(element) for element in elements]
        return tree.map_structure(lambda *v: v[0] if len(v) == 1 else tf.concat(v, axis=0), *outputs)

    return function


def _gather_workers(strategy: tf.distribute.Strategy, rows: tf.Tensor) -> tf.Tensor:
    """Concatenates the rows of all workers, in the order of the workers. Collective."""
    per_replica = strategy.experimental_distribute_values_from_function(
        lambda context: rows if context.replica_id_in_sync_group % num_local_replicas(strategy) == 0 else rows[:0]
    )
    return strategy.gather(per_replica, axis=0)
