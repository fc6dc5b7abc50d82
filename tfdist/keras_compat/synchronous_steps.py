"""The train, test and predict functions under a synchronous strategy: one step on all replicas.

Within `strategy.run` each replica executes the model's own `train_step` under a `ReplicaView`. One exchange crosses the
replicas, that of the optimizer: the gradients, and what layers assigned. The metrics' states stay on the replicas until
somebody reads the logs (step_logs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from tfdist.communication.carriers import carrier_of
from tfdist.communication.transport_exchange import TransportExchange
from tfdist.keras_compat.batch_shares import batch_shares
from tfdist.keras_compat.direct_call import DirectCall
from tfdist.keras_compat.input_position import GlobalBatches
from tfdist.keras_compat.layer_states import LayerStates
from tfdist.keras_compat.managed_strategies import exchange_of, num_local_replicas, num_replicas, worker_position
from tfdist.keras_compat.metric_logs import global_logs, metric_variables, output_loss_variables, own_logs
from tfdist.keras_compat.metric_states import MetricStateCheck
from tfdist.keras_compat.monitored_step import MonitoredInput
from tfdist.keras_compat.own_batches import counted_together
from tfdist.keras_compat.private_names import keras_backend, tree
from tfdist.keras_compat.randomness import separate_graph_seeds
from tfdist.keras_compat.row_sharding import split_batch, split_by_shares, static_rows
from tfdist.keras_compat.step_logs import StepLogs, current_interval
from tfdist.keras_compat.step_view import CopyView, ReplicaView, entered

__all__ = [
    "Outcome",
    "StepFunction",
    "SynchronousStep",
    "as_tensors",
    "join_batches",
    "make_predict_function",
    "make_predict_step",
    "make_step_function",
    "split_for_this_worker",
    "take_share",
]

_no_autograph = tf.autograph.experimental.do_not_convert


def _without_optionals(data: Any) -> Any:
    return tree.map_structure(lambda v: None if isinstance(v, tf.experimental.Optional) else v, data)


def _may_be_empty(data: Any) -> bool:
    """Whether the replica's batch may be a stand-in: its number of rows was not known when the pipeline was built."""
    leaves = [leaf for leaf in tree.flatten(data) if getattr(leaf, "shape", None) is not None]
    return isinstance(leaves[0], tf.SparseTensor) or leaves[0].shape[0] is None


def _per_replica(strategy: tf.distribute.Strategy, parts: tuple[Any, ...], num_rows: tf.Tensor) -> tuple[Any, Any, Any]:
    """Wraps local parts as values that `strategy.run` hands to the replicas, with their row counts and indices."""
    num_local = num_local_replicas(strategy)
    wrap = strategy.experimental_distribute_values_from_function
    return (
        wrap(lambda context: parts[context.replica_id_in_sync_group % num_local]),
        wrap(lambda context: num_rows[context.replica_id_in_sync_group % num_local]),
        _local_indices(strategy),
    )


def _local_indices(strategy: tf.distribute.Strategy) -> Any:
    """For each replica of this process its index among them."""
    num_local = num_local_replicas(strategy)
    return strategy.experimental_distribute_values_from_function(
        lambda context: context.replica_id_in_sync_group % num_local
    )


#: What a step returns: its logs other than metrics, as sums over the rows of this process, and all rows of the batch.
Outcome = tuple[list[tf.Tensor], tf.Tensor]


class SynchronousStep:
    """One step of a model on all replicas of this process, in cross-replica context."""

    def __init__(self, model: Any, step: Callable[[Any], Any]) -> None:
        self.model = model
        self.step = step
        self.strategy = model.distribute_strategy
        #: The structure of the logs, of the step that was traced or run last.
        self.logs: Any = {}
        #: Ids of the metrics' variables that the step updates. A metric that it never updates does not speak.
        self.updated: set[int] = set()
        #: How often the step sums gradients: more than once where it has several optimizers.
        self.num_reductions = 0

    @_no_autograph
    def __call__(self, element: tuple[Any, tf.Tensor, tf.Tensor], batch_ready: tf.Tensor | None = None) -> Outcome:
        """Runs the step on one element of the input pipeline (see row_sharding.py).

        `batch_ready` is when the element was there, if the graph has waited for it.
        """
        separate_graph_seeds(worker_position(self.strategy)[0])
        parts, num_rows, num_rows_global = element

        @_no_autograph
        def on_replica(data: Any, rows: tf.Tensor, local_index: Any) -> list[tf.Tensor]:
            return self._on_replica(
                _without_optionals(data), rows, num_rows_global, int(local_index), batch_ready=batch_ready
            )

        outputs = self.strategy.run(on_replica, args=_per_replica(self.strategy, parts, num_rows))
        sums = [tf.add_n(self.strategy.experimental_local_results(v)) for v in outputs]
        return sums, tf.identity(num_rows_global)

    def _on_replica(
        self, data: Any, rows: tf.Tensor, rows_global: tf.Tensor, local_index: int, *, batch_ready: tf.Tensor | None
    ) -> list[tf.Tensor]:
        metrics = metric_variables(self.model)
        view = ReplicaView(
            self.strategy,
            local_index,
            rows,
            rows_global,
            may_be_empty=_may_be_empty(data),
            metrics=metrics,
            metric_states=MetricStateCheck(self.model),
            layer_states=LayerStates(data, rows),
            batch_ready=batch_ready,
        )
        output_losses = output_loss_variables(self.model)
        with entered(view):
            # A stand-in row must not count, but in the losses of several outputs it weighs 0 (see unscale_loss).
            counted = [v for v in metrics if id(v) not in output_losses] if view.may_be_empty else []
            before = [tf.identity(v.value) for v in counted]
            logs = self.step(data)
            self._warn_of_unweighted_loss(view)
            for variable, value in zip(counted, before, strict=True):
                view.put_back(variable, tf.where(rows > 0, variable.value, value))
            view.average_assigned()
            self.updated |= view.updated_metrics
            self.num_reductions = view.num_reductions
            self.logs = tree.map_structure(lambda _: 0, logs)
            return [view.weighted(v) for v in own_logs(self.model, logs, self.updated)]

    def _warn_of_unweighted_loss(self, view: ReplicaView) -> None:
        overridden = getattr(self.step, "__func__", None) is not keras.Model.train_step
        if view.num_reductions and not view.num_scaled_losses and overridden:
            logging.log_first_n(
                logging.WARNING,
                "train_step of %s computes a loss without Keras's losses, so its gradients were summed over %d "
                "replicas as they are. Pass a loss that is a mean over rows through tfdist.scale_loss first.",
                1,
                type(self.model).__name__,
                num_replicas(self.strategy),
            )

    @_no_autograph
    def put_together(self, outcome: Outcome) -> Any:
        """Returns the logs of the global batches so far, given what the last step returned. Collective."""
        return self.logs_of(*self.sum_states(outcome))

    @_no_autograph
    def sum_states(self, outcome: Outcome) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Returns the states of the metrics, summed over all replicas, and the means of the other logs. Collective."""
        own_sums, num_rows_global = outcome

        @_no_autograph
        def on_replica(local_index: Any) -> list[tf.Tensor]:
            with entered(CopyView(self.strategy, int(local_index))):
                states = [tf.convert_to_tensor(v.value) for v in metric_variables(self.model)]
            # The other logs are sums over all replicas of this process already: the first of them brings them.
            own = own_sums if int(local_index) == 0 else [tf.zeros_like(v) for v in own_sums]
            return exchange_of(self.strategy).sum([*states, *own])

        sums = self.strategy.run(on_replica, args=(_local_indices(self.strategy),))
        sums = [self.strategy.experimental_local_results(v)[0] for v in sums]
        num_states = len(sums) - len(own_sums)
        return sums[:num_states], [v / tf.cast(num_rows_global, v.dtype) for v in sums[num_states:]]

    @_no_autograph
    def logs_of(self, states: list[tf.Tensor], means: list[tf.Tensor]) -> Any:
        """The logs, from what `sum_states` returns."""
        return global_logs(self.model, self.logs, means, states, self.updated)


class StepFunction:
    """What Keras calls `train_function` or `test_function`. Every worker must call it, as often as the others."""

    def __init__(self, model: Any, step: Callable[[Any], Any]) -> None:
        self._model = model
        self._strategy = model.distribute_strategy
        one_step = SynchronousStep(model, step)
        self._one_step, self._put_together = one_step.__call__, one_step.put_together
        if not model.run_eagerly:
            self._one_step = tf.function(self._one_step, reduce_retracing=True)
            self._put_together = tf.function(self._put_together, reduce_retracing=True)
        self._traced_steps = DirectCall(self._run_steps)
        self._traced_split_steps = DirectCall(self._run_split_steps)
        self.reset()

    def reset(self) -> None:
        """Starts an epoch."""
        self._outcome: Outcome | None = None
        self._num_steps_behind = 0
        self._logs = StepLogs({}, self._end)
        self._release()

    def __call__(self, iterator: Any) -> StepLogs:
        """Runs `steps_per_execution` steps and returns the logs as they were last put together.

        Args:
            iterator: An iterator of the input pipeline (one of `GlobalBatches` where `fit` is watched), or a generator
                of global batches.

        Raises:
            tf.errors.OutOfRangeError or StopIteration: At the end of the data.
        """
        splits = isinstance(iterator, GlobalBatches)
        if splits:
            iterator = iterator.iterator
        if not isinstance(iterator, tf.data.Iterator):
            self._outcome = self._one_step(split_for_this_worker(self._strategy, next(MonitoredInput(iterator))))
            return self._final()
        steps = self._model.steps_per_execution
        if not splits and len(iterator.element_spec) == 2:
            self._outcome = _run_one_by_one(self._one_step, counted_together(self._strategy, iterator), steps)
        elif self._model.run_eagerly:
            elements = self._split_each(iterator) if splits else iterator
            self._outcome = _run_one_by_one(self._one_step, elements, steps)
        else:
            self._outcome = (self._traced_split_steps if splits else self._traced_steps)(iterator)
        interval = current_interval()
        is_due = interval is not None and (not self._logs or self._num_steps_behind + steps >= interval)
        self._num_steps_behind += steps
        return self._final() if is_due else self._logs

    def _final(self) -> StepLogs:
        if self._outcome is not None:
            logs = self._put_together(self._outcome)
            self._outcome, self._num_steps_behind = None, 0
            self._logs = StepLogs(logs, self._end) if isinstance(logs, dict) else logs
        return self._logs

    def _end(self) -> StepLogs:
        """Ends an epoch: the iterator may go, and its logs are put together."""
        self._release()
        return self._final()

    def _release(self) -> None:
        self._traced_steps.release()
        self._traced_split_steps.release()

    def _split_each(self, iterator: tf.data.Iterator) -> Iterator[Any]:
        rows = static_rows(iterator.element_spec)
        return (take_share(self._strategy, batch, rows) for batch in iterator)

    @_no_autograph
    def _run_steps(self, iterator: tf.data.Iterator) -> Outcome:
        return self._run(self._one_step, iterator)

    @_no_autograph
    def _run_split_steps(self, iterator: tf.data.Iterator) -> Outcome:
        rows = static_rows(iterator.element_spec)

        @_no_autograph
        def one_step(batch: Any, batch_ready: tf.Tensor | None = None) -> Outcome:
            return self._one_step(take_share(self._strategy, batch, rows), batch_ready)

        return self._run(one_step, iterator)

    @_no_autograph
    def _run(self, one_step: Callable[..., Outcome], iterator: tf.data.Iterator) -> Outcome:
        steps = self._model.steps_per_execution
        if steps > 1:  # whose batches are taken beside other steps
            return _loop(one_step, iterator, one_step(next(iterator)), steps)
        batch = next(iterator)
        if not exchange_of(self._strategy).is_timed:
            return one_step(batch)
        leaves = tf.nest.flatten(batch, expand_composites=True)  # some may be None
        with tf.control_dependencies([leaf for leaf in leaves if tf.is_tensor(leaf)]):
            batch_ready = tf.timestamp()
        return one_step(batch, batch_ready)


def make_step_function(model: Any, step: Callable[[Any], Any]) -> StepFunction:
    """Returns what Keras calls `train_function` or `test_function`.

    Args:
        model: A compiled model that was made in the scope of a managed synchronous strategy.
        step: Its `train_step` or `test_step`.
    """
    if model.jit_compile:
        logging.log_first_n(
            logging.WARNING,
            "jit_compile=True is not used under %s: XLA cannot compile the exchange between replicas.",
            1,
            type(model.distribute_strategy).__name__,
        )
    return StepFunction(model, step)


def _run_one_by_one(one_step: Any, elements: Iterator[Any], steps: int) -> Outcome:
    """Runs up to `steps` steps; raises `StopIteration` when there is no element for the first."""
    elements = MonitoredInput(elements)
    outcome = one_step(next(elements))
    for _, element in zip(range(steps - 1), elements, strict=False):
        outcome = one_step(element)
    return outcome


def _loop(one_step: Any, iterator: tf.data.Iterator, outcome: Outcome, steps: int) -> Outcome:
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
    return tf.while_loop(go_on, body, [first, following(first), outcome])[2]


def split_for_this_worker(strategy: tf.distribute.Strategy, batch: Any) -> tuple[Any, Any, Any]:
    """Takes this worker's share of one global batch, for `train_on_batch` and its like."""
    return take_share(strategy, as_tensors(batch), None)


def as_tensors(batch: Any) -> Any:
    """Converts what is no tensor yet."""
    return tree.map_structure(lambda v: None if v is None else keras_backend.convert_to_tensor(v), batch)


def take_share(strategy: tf.distribute.Strategy, batch: Any, rows: int | None) -> tuple[Any, Any, Any]:
    """This worker's share of a global batch, of `rows` rows where that is known."""
    shares = batch_shares(strategy)
    if shares is not None:
        shares.follow_members(strategy)
        return split_by_shares(batch, shares, worker_position(strategy)[0])
    num_local = num_local_replicas(strategy)
    first = worker_position(strategy)[0] * num_local
    return split_batch(batch, first, num_local, num_replicas(strategy), rows)


def make_predict_step(model: Any) -> Callable[[tuple[Any, ...]], Any]:
    """Returns a function of an element of the input pipeline that returns the outputs for all its rows, in order.

    Collective where there are several workers.
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

    return one_step


def make_predict_function(model: Any) -> Callable[[list[Any]], Any]:
    """Returns what Keras calls `predict_function`.

    Returns:
        A function of a list of elements of the input pipeline that returns the model's outputs for all rows of those
        global batches, in order, on every worker. Every worker must call it, as often as the others.
    """
    strategy = model.distribute_strategy
    one_step = make_predict_step(model)
    if not model.run_eagerly:
        one_step = tf.function(one_step, reduce_retracing=True)

    def function(elements: list[Any]) -> Any:
        if len(elements) == 1 and len(elements[0]) == 1:  # predict_on_batch: [(x,)]
            elements = [split_for_this_worker(strategy, elements[0])]
        return join_batches([one_step(element) for element in elements])

    return function


def join_batches(outputs: list[Any]) -> Any:
    """Puts the outputs of several batches together."""
    return tree.map_structure(lambda *v: v[0] if len(v) == 1 else tf.concat(v, axis=0), *outputs)


def _gather_workers(strategy: tf.distribute.Strategy, rows: tf.Tensor) -> tf.Tensor:
    """Concatenates the rows of all workers, in the order of the workers. Collective."""
    exchange = exchange_of(strategy)
    if isinstance(exchange, TransportExchange) and rows.dtype != tf.string:
        return exchange.gather(rows)
    carrier = carrier_of(rows.dtype)
    if carrier is not None:
        return tf.cast(_gather_workers(strategy, tf.cast(rows, carrier)), rows.dtype)
    per_replica = strategy.experimental_distribute_values_from_function(
        lambda context: rows if context.replica_id_in_sync_group % num_local_replicas(strategy) == 0 else rows[:0]
    )
    return strategy.gather(per_replica, axis=0)
