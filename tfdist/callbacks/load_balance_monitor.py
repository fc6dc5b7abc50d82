"""Says who is slow in a job of several workers, why, and what it costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from tfdist.balancing import Judge, Judgement, Rules, describe_straggler, summarize_steps
from tfdist.callbacks.load_balance_report import LoadBalanceReport
from tfdist.communication.transport_exchange import TransportExchange
from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.managed_strategies import elastic_group, exchange_of, is_chief, is_managed
from tfdist.reporting.events import report_event

__all__ = ["LoadBalanceMonitor"]


class LoadBalanceMonitor(keras.callbacks.Callback):
    """Finds stragglers: workers for which all others wait, again and again.

    Every worker makes it. It adds no exchange: what each worker spends its time on travels with the gradients, so it
    works over tfdist's own transports (`tcp`, `mpi`), also in elastic jobs. Over TensorFlow's collectives, under
    parameter servers and with one process it measures nothing, and says so once.

    The rule is that of `tfdist.balancing.rule`: medians over a window of steps, twice in a row. Steps that build a
    graph and the first step of each epoch, which has validation and what callbacks do between epochs in it, are left
    out.

    At the end of an epoch in which something is wrong, the chief prints a table and what to do. When a straggler is
    found or is none any more, an event `straggler` goes to the job's event log.

    Args:
        window_steps: Steps of a window, at least 5.
        tolerance: By which share a worker may take longer than the others, above 0.
        verbose: 0: prints nothing. 1: prints when something is wrong. 2: prints at the end of each epoch.

    Attributes:
        judgement: Of the newest window; None before the first. The same on all workers.
    """

    def __init__(self, *, window_steps: int = 20, tolerance: float = 0.25, verbose: int = 1) -> None:
        super().__init__()
        if window_steps < 5 or not tolerance > 0:
            raise ArgumentError(
                describe_problem(
                    "LoadBalanceMonitor cannot be made",
                    received=f"window_steps={window_steps!r}, tolerance={tolerance!r}",
                    expected="at least 5 steps and a tolerance above 0",
                    fix="Leave them out, or pass larger ones.",
                )
            )
        self._window_steps, self._rules, self._verbose = window_steps, Rules(tolerance=tolerance), verbose
        self._exchange: TransportExchange | None = None
        self._num_to_skip = 0
        self._begin_anew(0)

    def _begin_anew(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._judge = Judge(self._rules)
        self._tables: list[np.ndarray[Any, Any]] = []
        self.judgement: Judgement | None = None

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Begins to listen."""
        self._stop_listening()  # a `fit` that was broken off has not
        strategy = self.model.distribute_strategy
        exchange = exchange_of(strategy) if is_managed(strategy) else None
        if not isinstance(exchange, TransportExchange):
            logging.log_first_n(
                logging.WARNING,
                "LoadBalanceMonitor measures nothing here: timings travel over tfdist's own transports between workers "
                "(transport='tcp' or 'mpi' of multi_worker_mirrored_strategy, or an elastic job).",
                1,
            )
            return
        self._exchange = exchange
        exchange.timings.observers.append(self._take)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Takes note that the next step has more in it than a step."""
        self._num_to_skip = 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reports."""
        if self.judgement is None or not is_chief(self.model.distribute_strategy):
            return
        if self._verbose > 1 or (self._verbose and not self.judgement.is_well):
            print(f"\nLoad balance, epoch {epoch + 1}\n{self.report()}", file=sys.stderr, flush=True)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Stops listening."""
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._exchange is not None and self._take in self._exchange.timings.observers:
            self._exchange.timings.observers.remove(self._take)
        self._exchange = None

    def report(self) -> LoadBalanceReport | None:
        """What was found in the newest window, to be shown or drawn; None before the first."""
        return None if self.judgement is None else LoadBalanceReport(self.judgement, self._names())

    def _names(self) -> Sequence[str]:
        group = elastic_group(self.model.distribute_strategy)
        if group is not None and len(group.members) == self._num_workers:
            return group.members
        return [f"worker {rank}" for rank in range(self._num_workers)]

    def _take(self, table: np.ndarray[Any, Any]) -> None:
        """Called with each step's table, by the thread that exchanges."""
        if len(table) != self._num_workers:  # an elastic job has changed its size
            self._begin_anew(len(table))
        if self._num_to_skip:
            self._num_to_skip -= 1
            return
        self._tables.append(np.array(table, np.float64))
        if len(self._tables) < self._window_steps:
            return
        window = summarize_steps(self._tables, self._rules.tolerance)
        self._tables = []
        if window is None or window.num_steps < self._window_steps / 2:
            return
        before = () if self.judgement is None else self.judgement.stragglers
        self.judgement = self._judge.judge(window)
        if is_chief(self.model.distribute_strategy):
            self._tell_changes({each.worker for each in before})

    def _tell_changes(self, before: set[int]) -> None:
        assert self.judgement is not None
        names = self._names()
        now = {each.worker: each for each in self.judgement.stragglers}
        for rank, straggler in now.items():
            if rank not in before:
                report_event(
                    "straggler",
                    worker=names[rank],
                    is_slow=True,
                    part=straggler.part,
                    reason=describe_straggler(straggler, names),
                    cost=round(straggler.cost.share, 3),
                )
        for rank in before - now.keys():
            report_event("straggler", worker=names[rank], is_slow=False)
