"""Says who is slow in a job of several workers, why, and what it costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from tfdist.balancing import (
    Judge,
    Judgement,
    Rules,
    describe_asynchronous_load,
    describe_straggler,
    next_shares,
    summarize_steps,
)
from tfdist.callbacks.asynchronous_load import AsynchronousReport, AsynchronousWatch
from tfdist.callbacks.load_balance_report import LoadBalanceReport
from tfdist.communication.exchange import Exchange
from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.batch_shares import BatchShares, batch_shares
from tfdist.keras_compat.managed_strategies import (
    elastic_group,
    exchange_of,
    is_chief,
    is_managed,
    is_parameter_server,
    num_local_replicas,
)
from tfdist.reporting.events import report_event

__all__ = ["LoadBalanceMonitor"]


class LoadBalanceMonitor(keras.callbacks.Callback):
    """Finds stragglers: workers for which all others wait, again and again.

    Every worker makes it. It adds no exchange: what each worker spends its time on travels with the gradients. Where
    several devices belong to a process, it looks at each device. On GPUs, which TensorFlow runs asynchronously, a
    device's computing seems shorter and its exchange longer than it is; that was not tried.

    Under parameter servers, where whoever is free takes the next step and nobody waits for a slow worker, it says which
    worker has made how many steps, how long they took, and whether one of the parameter servers holds most of what
    steps read and update.

    The rule is that of `tfdist.balancing.rule`: medians over a window of steps, twice in a row. Steps that build a
    graph and the first step of each epoch, which has validation and what callbacks do between epochs in it, are left
    out.

    At the end of an epoch in which something is wrong, the chief prints a table and what to do. When a straggler is
    found or is none any more, an event `straggler` goes to the job's event log.

    With `rebalance=True` the shares of the global batch follow what each worker can compute: a straggler gets fewer
    rows, from a quarter of an equal share on, and the others more. The global batch and its gradient stay what they
    are, and every row is trained on once. New shares hold from the same step on all workers, and an event `rebalanced`
    tells of them. They begin equal in a new process, and when members of an elastic job come or go. Where workers have
    batches of their own (FILE policy, dataset functions) or several devices each, nothing can be moved, which a warning
    says.

    Args:
        window_steps: Steps of a window, at least 5.
        tolerance: By which share of their time a worker may take longer than the others, above 0 (0.25: a quarter).
        rebalance: Whether to move rows from stragglers to the others.
        verbose: 0: prints nothing. 1: prints when something is wrong. 2: prints at the end of each epoch.

    Attributes:
        judgement: Of the newest window; None before the first. The same on all workers.
        rebalances: As `rebalance`; the steps are built accordingly.
        needs_timings: Always: steps that it watches tell of their time.

    Raises:
        ArgumentError: `window_steps` or `tolerance` is too small.
    """

    def __init__(
        self, *, window_steps: int = 20, tolerance: float = 0.25, rebalance: bool = False, verbose: int = 1
    ) -> None:
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
        self.rebalances = rebalance
        self.needs_timings = True
        self._exchange: Exchange | None = None
        self._batch_shares: BatchShares | None = None
        self._asynchronous: AsynchronousWatch | None = None
        self._num_to_skip = 0
        self._begin_anew((0, 0))

    def _begin_anew(self, members: tuple[int, int]) -> None:
        self._members = members
        self._shares: list[float] = []
        self._judge = Judge(self._rules)
        self._tables: list[np.ndarray[Any, Any]] = []
        self.judgement: Judgement | None = None

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Begins to listen."""
        self._stop_listening()  # a `fit` that was broken off has not
        self._asynchronous = None
        strategy = self.model.distribute_strategy
        if not is_managed(strategy):
            logging.log_first_n(
                logging.WARNING,
                "LoadBalanceMonitor measures nothing here: it looks at training under the strategies of tfdist.",
                1,
            )
            return
        if is_parameter_server(strategy):
            self._asynchronous = AsynchronousWatch(self.model, self._rules)
            return
        self._exchange = exchange = exchange_of(strategy)
        self._batch_shares = batch_shares(strategy) if self.rebalances else None
        if self._batch_shares is not None:
            exchange.timings.observers.append(self._batch_shares.take)
        exchange.timings.observers.append(self._take)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Takes note that the next step has more in it than a step."""
        self._num_to_skip = 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Reports."""
        if self._asynchronous is not None and (report := self._asynchronous.report()) is not None:
            is_well = not describe_asynchronous_load(report.load, self._rules)
            self._say(epoch, report, is_well=is_well)
        if self.judgement is None or not is_chief(self.model.distribute_strategy):
            return
        if self.rebalances and not self._shares:
            logging.log_first_n(
                logging.WARNING,
                "LoadBalanceMonitor(rebalance=True) moves no rows: the workers have batches of their own, or several "
                "devices each. Pass a dataset of global batches (without auto_shard_policy FILE or OFF), and start a "
                "worker for each device, to let it.",
                1,
            )
        self._say(epoch, self.report(), is_well=self.judgement.is_well)

    def _say(self, epoch: int, report: object, *, is_well: bool) -> None:
        if self._verbose > 1 or (self._verbose and not is_well):
            print(f"\nLoad balance, epoch {epoch + 1}\n{report}", file=sys.stderr, flush=True)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Stops listening."""
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._exchange is not None:
            shares = self._batch_shares
            own = (self._take, None if shares is None else shares.take)
            observers = self._exchange.timings.observers
            observers[:] = [observer for observer in observers if observer not in own]
        self._exchange = self._batch_shares = None
        if self._asynchronous is not None:
            self._asynchronous.stop()

    def report(self) -> LoadBalanceReport | AsynchronousReport | None:
        """What was found in the newest window, to be shown or drawn; None before the first.

        Not collective: any worker may ask, at any time; all get the same. Under parameter servers, what was counted
        since training began, to be shown.

        Returns:
            A report that `print` shows as a table, times in milliseconds; `plot()` draws it (extra `plots`).
        """
        if self._asynchronous is not None:
            return self._asynchronous.report()
        return None if self.judgement is None else LoadBalanceReport(self.judgement, self._names())

    def _names(self) -> Sequence[str]:
        strategy = self.model.distribute_strategy
        group = elastic_group(strategy)
        num_members, num_local = self._members[0], num_local_replicas(strategy)
        if group is not None and len(group.members) == num_members:
            return group.members
        if num_local == 1:
            return [f"worker {rank}" for rank in range(num_members)]
        if num_local == num_members:
            return [f"device {rank}" for rank in range(num_members)]
        return [f"worker {rank // num_local} device {rank % num_local}" for rank in range(num_members)]

    def _take(self, table: np.ndarray[Any, Any]) -> None:
        """Called with each step's table, by the thread that exchanges."""
        assert self._exchange is not None
        group = elastic_group(self.model.distribute_strategy)
        members = (len(table), 0 if group is None else group.number)
        if members != self._members:  # those of an elastic job have changed
            self._begin_anew(members)
            self._exchange.timings.shares = None
        if self._batch_shares is not None and self._batch_shares.values != self._shares:
            self._shares = self._batch_shares.values
            self._tables = []
            self._num_to_skip = 1  # the next step is the first one with them
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
            self._rebalance()

    def _rebalance(self) -> None:
        """Lets the next table bring new shares, if the workers are to have others."""
        if not self._shares or self._exchange is None or self.judgement is None:
            return
        shares = next_shares(self._shares, self.judgement, self._rules)
        if shares is not None:
            self._exchange.timings.shares = shares
            percent = {name: round(100 * share, 1) for name, share in zip(self._names(), shares, strict=True)}
            report_event("rebalanced", percent=percent)
            if self._verbose:
                said = ", ".join(f"{name} {share:.0f}%" for name, share in percent.items())
                print(f"Shares of the global batch from now on: {said}", file=sys.stderr, flush=True)

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
