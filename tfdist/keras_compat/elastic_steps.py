"""The train, test and predict functions of an elastic job: a step is done again when a worker is lost on the way.

A step changes nothing for good before its exchange but what `_Undo` puts back: the metrics, and what layers assign. The
weights and the optimizer follow from what was exchanged, which all members have or none. So when a member is lost, the
others share out the same global batch anew and do the step again; those that had finished it go on.

The states of metrics are sums over a replica's rows, and would be lost with it. So they are added up after every step;
all members remember the sums, and the first one carries them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfdist.keras_compat.elastic_operations import perform
from tfdist.keras_compat.input_position import GlobalBatches
from tfdist.keras_compat.managed_strategies import elastic_group, exchange_of
from tfdist.keras_compat.metric_logs import metric_variables
from tfdist.keras_compat.monitored_step import MonitoredInput
from tfdist.keras_compat.row_sharding import static_rows
from tfdist.keras_compat.step_logs import StepLogs
from tfdist.keras_compat.step_view import CopyView, entered
from tfdist.keras_compat.synchronous_steps import (
    Outcome,
    SynchronousStep,
    as_tensors,
    join_batches,
    make_predict_step,
    split_for_this_worker,
    take_share,
)

__all__ = ["make_predict_function", "make_step_function"]

_no_autograph = tf.autograph.experimental.do_not_convert


class _ElasticStepFunction:
    """What Keras calls `train_function` or `test_function`. Every worker must call it, as often as the others."""

    def __init__(self, model: Any, step: Callable[[Any], Any]) -> None:
        self._model = model
        self._strategy = model.distribute_strategy
        self._step = step
        self._group = elastic_group(self._strategy)
        assert self._group is not None
        self._traced_for: int | None = None  # a round
        self._is_first = self._group.rank == 0
        self.reset()

    def reset(self) -> None:
        """Starts an epoch."""
        self._states: list[tf.Tensor] | None = None
        self._logs = StepLogs({}, lambda: self._logs)

    def __call__(self, iterator: Any) -> StepLogs:
        """Runs `steps_per_execution` steps, one by one, and returns the logs.

        Args:
            iterator: One of `GlobalBatches`, or a generator of global batches.

        Raises:
            StopIteration: At the end of the data.
        """
        rows = None
        if isinstance(iterator, GlobalBatches):
            iterator = iterator.iterator
            rows = static_rows(iterator.element_spec)
        batches: Iterator[Any] = MonitoredInput(map(as_tensors, iterator))
        logs = self._run(next(batches), rows)
        for _, batch in zip(range(self._model.steps_per_execution - 1), batches, strict=False):
            logs = self._run(batch, rows)
        self._logs = StepLogs(logs, lambda: self._logs) if isinstance(logs, dict) else logs
        return self._logs

    def _run(self, batch: Any, rows: int | None) -> Any:
        assert self._group is not None
        exchange: Any = exchange_of(self._strategy)
        self._follow_members()
        undo = _Undo(self._model, everything=self._one_step.num_reductions != 1)

        def do_again() -> None:
            undo()
            self._follow_members()

        outcome: Outcome = perform(
            self._group, lambda: self._traced_step(batch, rows), exchange=exchange, undo=do_again
        )
        self._follow_members()
        states, means = perform(
            self._group, lambda: self._traced_sum(outcome), exchange=exchange, undo=self._follow_members
        )
        self._states = states
        self._is_first = self._group.rank == 0  # it may have become so within the sum
        _assign_states(self._model, states if self._is_first else [tf.zeros_like(v) for v in states])
        return self._one_step.logs_of(states, means)

    def _follow_members(self) -> None:
        """Prepares for the members that there are now."""
        assert self._group is not None
        if self._traced_for != self._group.number:
            self._traced_for = self._group.number
            self._one_step = SynchronousStep(self._model, self._step)

            @_no_autograph
            def one_step(batch: Any, rows: int | None) -> Outcome:
                return self._one_step(take_share(self._strategy, batch, rows))

            self._traced_step, self._traced_sum = one_step, self._one_step.sum_states
            if not self._model.run_eagerly:
                self._traced_step = tf.function(one_step, reduce_retracing=True)
                self._traced_sum = tf.function(self._one_step.sum_states, reduce_retracing=True)
        if self._group.rank == 0 and not self._is_first and self._states is not None:
            # The one that carried the sums is gone: this one does from now on.
            with entered(CopyView(self._strategy, 0)):
                now = [tf.convert_to_tensor(v.value) for v in metric_variables(self._model)]
            _assign_states(self._model, [a + b for a, b in zip(self._states, now, strict=True)])
        self._is_first = self._group.rank == 0


class _Undo:
    """Puts back what a step changes before its exchange.

    Args:
        model: The model.
        everything: Whether weights and optimizers may change, too, as where a step has several optimizers.
    """

    def __init__(self, model: Any, *, everything: bool) -> None:
        self._strategy = model.distribute_strategy
        kept = {id(v): v for v in (*model.variables, *metric_variables(model))}
        optimizer = [] if model.optimizer is None else list(model.optimizer.variables)
        if everything:
            kept |= {id(v): v for v in optimizer}
        else:
            for variable in (*model.trainable_variables, *optimizer):
                kept.pop(id(variable), None)
        self._variables = list(kept.values())
        with entered(CopyView(self._strategy, 0)):
            self._values = [tf.convert_to_tensor(v.value) for v in self._variables]

    def __call__(self) -> None:
        """Puts it back."""
        with entered(CopyView(self._strategy, 0)):
            for variable, value in zip(self._variables, self._values, strict=True):
                variable.assign(value)


def _assign_states(model: Any, states: list[tf.Tensor]) -> None:
    with entered(CopyView(model.distribute_strategy, 0)):
        for variable, state in zip(metric_variables(model), states, strict=True):
            variable.assign(state)


def make_step_function(model: Any, step: Callable[[Any], Any]) -> _ElasticStepFunction:
    """Returns what Keras calls `train_function` or `test_function`.

    Args:
        model: A compiled model that was made in the scope of an elastic strategy.
        step: Its `train_step` or `test_step`.
    """
    return _ElasticStepFunction(model, step)


def make_predict_function(model: Any) -> Callable[[list[Any]], Any]:
    """Returns what Keras calls `predict_function`; see `synchronous_steps.make_predict_function`."""
    strategy = model.distribute_strategy
    group = elastic_group(strategy)
    assert group is not None

    @functools.lru_cache(maxsize=1)
    def step_of_round(_: int) -> Callable[[Any], Any]:
        step = make_predict_step(model)
        return step if model.run_eagerly else tf.function(step, reduce_retracing=True)

    def one_step(batch: Any) -> Any:
        return step_of_round(group.number)(split_for_this_worker(strategy, batch))

    def function(elements: list[Any]) -> Any:
        exchange: Any = exchange_of(strategy)
        outputs = [perform(group, functools.partial(one_step, batch), exchange=exchange) for batch in elements]
        return join_batches(outputs)

    return function
