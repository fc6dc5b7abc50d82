"""What one replica acts on while its training step is traced or run.

Keras writes a step for one device: layers, metrics and optimizers read and assign Keras variables. Under a strategy a
Keras variable stands for several TensorFlow variables. A *step view*, held per thread, says which of them the code that
now runs means; `variables.py`, `losses.py` and `optimizers.py` ask it. So the whole step, custom `train_step` and
optimizer included, is Keras's own single-device code, and the only thing that crosses replicas is the exchange.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfdist.keras_compat import managed_strategies, private_names
from tfdist.keras_compat.layer_states import LayerStates
from tfdist.keras_compat.metric_states import MetricStateCheck

__all__ = ["CopyView", "ReplicaView", "StepView", "current_view", "entered"]


class _PerThread(threading.local):
    view: StepView | None = None


_per_thread = _PerThread()


def current_view() -> StepView | None:
    """The view of the step that this thread runs, or `None` outside of a step."""
    return _per_thread.view


@contextlib.contextmanager
def entered(view: StepView | None) -> Iterator[None]:
    """Makes `view` the current one of this thread for the block."""
    before = _per_thread.view
    _per_thread.view = view
    try:
        yield
    finally:
        _per_thread.view = before


class StepView:
    """A view under which nothing differs from a single device. The base of the others."""

    #: Whether optimizers run Keras's backend-independent code, variable by variable, on this replica alone.
    updates_alone = False

    def read(self, variable: Any) -> Any | None:  # noqa: ARG002
        """Returns what stands for `variable.value` here, or `None` for the variable's own."""
        return None

    def assign(self, variable: Any, value: tf.Tensor) -> bool:  # noqa: ARG002
        """Assigns what `read` returns. Returns `False` when that is left to the variable itself."""
        return False

    def scale_loss(self, value: tf.Tensor) -> tf.Tensor:
        """Turns a mean over this replica's rows into its share of the mean over the global batch."""
        return value

    def unscale_loss(self, value: tf.Tensor) -> tf.Tensor:
        """Undoes `scale_loss`."""
        return value

    def reduce_gradients(self, gradients: Sequence[Any]) -> list[Any]:
        """Turns this replica's gradients into those of the global batch."""
        return list(gradients)


class CopyView(StepView):
    """A view of the copies of distributed variables that one replica of this process holds.

    Args:
        strategy: A synchronous strategy.
        local_index: Index of the replica among those of this process.
    """

    updates_alone = True

    def __init__(self, strategy: tf.distribute.Strategy, local_index: int) -> None:
        self.strategy = strategy
        self.local_index = local_index

    def read(self, variable: Any) -> Any | None:
        """Returns the copy of a distributed variable that lives on this replica."""
        value = private_names.variable_value(variable)
        if isinstance(value, tf.distribute.DistributedValues):
            return self.strategy.experimental_local_results(value)[self.local_index]
        return None

    def assign(self, variable: Any, value: tf.Tensor) -> bool:
        """Assigns that copy."""
        copy = CopyView.read(self, variable)
        if copy is None:
            return False
        copy.assign(tf.cast(value, copy.dtype))
        return True


class ReplicaView(CopyView):
    """The view of one replica that executes a step, in replica context.

    Args:
        strategy: The strategy.
        local_index: Index of the replica among those of this process.
        num_rows: Rows that the replica trains on, a scalar integer tensor. May be 0: then the data at hand are a
            stand-in row that must not count.
        num_rows_global: Rows of the global batch, a scalar integer tensor.
        may_be_empty: Whether `num_rows` may be 0: the number of rows was not known when the pipeline was built.
        metrics: The variables of the model's metrics. Their states stay on the replica.
        metric_states: Looks at the updates of metrics, where the step has any.
        layer_states: Looks at the updates of integer variables by layers, where the step trains or evaluates.
        batch_ready: When the batch was there, for which the graph has waited; None if not known.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        local_index: int,
        num_rows: tf.Tensor,
        num_rows_global: tf.Tensor,
        *,
        may_be_empty: bool,
        metrics: Sequence[Any] = (),
        metric_states: MetricStateCheck | None = None,
        layer_states: LayerStates | None = None,
        batch_ready: tf.Tensor | None = None,
    ) -> None:
        super().__init__(strategy, local_index)
        self._metric_states = metric_states
        self._layer_states = layer_states
        self._batch_ready = batch_ready
        self.num_rows = num_rows
        self.num_rows_global = num_rows_global
        self.may_be_empty = may_be_empty
        #: Ids of the metrics' variables that the step assigned.
        self.updated_metrics: set[int] = set()
        self._metrics = {id(v) for v in metrics}
        self._to_average: dict[int, Any] = {}
        self._to_add_up: dict[int, tuple[Any, tf.Tensor]] = {}
        self._reducing = False
        self._exchanged: list[tf.Tensor] = []
        self._in_compile_loss = False
        self._shares: dict[int, tf.Tensor] = {}
        self.num_scaled_losses = 0
        self.num_reductions = 0

    @property
    def replica_index(self) -> int:
        """Index of the replica in the job."""
        worker = managed_strategies.worker_position(self.strategy)[0]
        return worker * managed_strategies.num_local_replicas(self.strategy) + self.local_index

    @property
    def share_of_rows(self) -> tf.Tensor:
        """This replica's part of the rows of the global batch, a float64 scalar."""
        return tf.cast(self.num_rows, tf.float64) / tf.cast(self.num_rows_global, tf.float64)

    def read(self, variable: Any) -> Any | None:
        """Returns the copy of a distributed variable that lives on this replica."""
        copy = super().read(variable)
        if copy is None:
            return None
        if self._metric_states is not None and self._metric_states.watches(variable):
            copy = tf.convert_to_tensor(copy)
            self._metric_states.remember_read(variable, copy)
        elif (states := self._layer_states_for(variable)) is not None:
            is_partial = id(variable) in self._to_add_up or id(variable) in self._to_average
            if is_partial or states.watches(copy.dtype):
                copy = tf.convert_to_tensor(copy)
                states.remember_read(variable, copy, is_partial=is_partial)
        return copy

    def assign(self, variable: Any, value: tf.Tensor) -> bool:
        """Assigns this replica's copy, and remembers it unless an optimizer does, which all replicas do alike."""
        dtype = tf.as_dtype(private_names.variable_value(variable).dtype)
        if id(variable) in self._metrics:
            self.updated_metrics.add(id(variable))
        elif not self._reducing and dtype.is_floating:
            self._to_average[id(variable)] = variable
        elif (states := self._layer_states_for(variable)) is not None and states.watches(dtype):
            is_sum = states.is_sum_over_rows(variable, value)
            copy = super().read(variable)
            if is_sum and copy is not None and id(variable) not in self._to_add_up:
                self._to_add_up[id(variable)] = (variable, tf.identity(copy))
        if self._metric_states is not None and self._metric_states.watches(variable):
            self._metric_states.check_update(variable, value)
        return super().assign(variable, value)

    def _layer_states_for(self, variable: Any) -> LayerStates | None:
        """What looks at this variable, in a traced step, while layers run."""
        is_looked_at = not (self._reducing or tf.executing_eagerly() or id(variable) in self._metrics)
        return self._layer_states if is_looked_at else None

    def put_back(self, variable: Any, value: tf.Tensor) -> None:
        """Undoes what a step assigned to this replica's copy."""
        super().assign(variable, value)

    def scale_loss(self, value: tf.Tensor) -> tf.Tensor:
        """Weights a mean over this replica's rows by its share of the rows."""
        self.num_scaled_losses += 1
        return value * tf.cast(self.num_rows, value.dtype) / tf.cast(self.num_rows_global, value.dtype)

    def unscale_loss(self, value: tf.Tensor) -> tf.Tensor:
        """Undoes `scale_loss`; of an empty replica's loss, 0, it makes 0."""
        if self._in_compile_loss and self.may_be_empty:
            # Keras then averages the losses of several outputs over batches, without weights
            # (keras/src/trainers/compile_utils.py, CompileLoss.call): N shares, of weight 1 each, do so over replicas.
            return value * tf.cast(managed_strategies.num_replicas(self.strategy), value.dtype)
        if value.shape.rank != 0:  # a loss that is not reduced was not scaled either
            return value
        rows = tf.maximum(self.num_rows, 1)
        return value * tf.cast(self.num_rows_global, value.dtype) / tf.cast(rows, value.dtype)

    def remember_share(self, loss: tf.Tensor) -> tf.Tensor:
        """Takes note that `loss` is this replica's share of a loss of the global batch, and returns it."""
        if tf.is_tensor(loss) and loss.shape.rank == 0:
            self._shares[id(loss)] = loss
        return loss

    def is_share(self, value: Any) -> bool:
        """Whether `value` is a share that was remembered."""
        return id(value) in self._shares

    def silence_if_empty(self, value: tf.Tensor) -> tf.Tensor:
        """Makes 0 of what the stand-in row of an empty replica contributes to a sum."""
        return tf.where(self.num_rows > 0, value, tf.zeros_like(value)) if self.may_be_empty else value

    def sum_over_replicas(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums what each replica worked out of its rows, differentiably. Must be called by every replica."""
        return managed_strategies.exchange_of(self.strategy).sum([self.silence_if_empty(v) for v in values])

    @contextlib.contextmanager
    def in_compile_loss(self) -> Iterator[None]:
        """While Keras works out the losses given to `compile`."""
        self._in_compile_loss = True
        try:
            yield
        finally:
            self._in_compile_loss = False

    def reduce_gradients(self, gradients: Sequence[Any]) -> list[Any]:
        """Sums gradients over all replicas of the job. Must be called by every replica.

        What layers have assigned until then travels along, and becomes the mean over the rows of the global batch.
        """
        self.num_reductions += 1
        present = [g for g in gradients if g is not None]
        if self.may_be_empty:
            # A loss that is a sum, not a mean, is not scaled, so the stand-in row must be silenced here.
            present = _zeros_unless(self.num_rows > 0, present)
        is_known = self._batch_ready is not None and self.num_reductions == 1
        ready = self._batch_ready if is_known else tf.constant(0.0, tf.float64)
        reduced = iter(self._exchange(present, tf.stack([ready, tf.cast(self.num_rows, tf.float64)])))
        return [None if g is None else next(reduced) for g in gradients]

    def average_assigned(self) -> None:
        """Makes what layers assigned since the last exchange the mean over rows. Must be called by every replica."""
        self._exchange([])

    def _exchange(self, tensors: list[Any], own_batch: tf.Tensor | None = None) -> list[Any]:
        averaged = [v for v in self._to_average.values() if CopyView.read(self, v) is not None]
        added_up = list(self._to_add_up.values())
        self._to_average.clear()
        self._to_add_up.clear()
        shares = [self.weighted(tf.convert_to_tensor(CopyView.read(self, v))) for v in averaged]
        parts = [self.silence_if_empty(tf.cast(CopyView.read(self, v) - before, tf.int64)) for v, before in added_up]
        exchange = managed_strategies.exchange_of(self.strategy)
        sums = iter(exchange.sum([*tensors, *shares, *parts], own_batch=own_batch))
        reduced = [next(sums) for _ in tensors]
        self._exchanged = [r.values if isinstance(r, tf.IndexedSlices) else r for r in reduced]
        for variable in averaged:
            total = next(sums)
            self.put_back(variable, total / tf.cast(self.num_rows_global, total.dtype))
        for variable, before in added_up:
            self.put_back(variable, before + tf.cast(next(sums), before.dtype))
        return reduced

    def weighted(self, value: tf.Tensor) -> tf.Tensor:
        """Weights a value of this replica's rows by their number, so that the replicas' values can be added up."""
        rows = self.num_rows_global if self.is_share(value) else self.num_rows
        return self.silence_if_empty(value * tf.cast(rows, value.dtype))

    @contextlib.contextmanager
    def reduced(self) -> Iterator[None]:
        """While an optimizer applies gradients that are already those of the global batch.

        In an elastic job nothing of that happens before the exchange is over, not even the counting of the step: where
        a member is lost in the exchange, the step is done again.
        """
        self._reducing = True
        waits = managed_strategies.elastic_group(self.strategy) is not None
        try:
            with tf.control_dependencies(self._exchanged if waits else []):
                yield
        finally:
            self._reducing = False

    @property
    def is_reduced(self) -> bool:
        """Whether the gradients at hand are already those of the global batch."""
        return self._reducing


def _zeros_unless(condition: tf.Tensor, gradients: list[Any]) -> list[Any]:
    """Returns the gradients, or zeros. A branch, which passes large tensors on without touching them."""
    parts = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    chosen = tf.cond(condition, lambda: [tf.identity(v) for v in parts], lambda: [tf.zeros_like(v) for v in parts])
    return [
        tf.IndexedSlices(value, g.indices, g.dense_shape) if isinstance(g, tf.IndexedSlices) else value
        for g, value in zip(gradients, chosen, strict=True)
    ]
