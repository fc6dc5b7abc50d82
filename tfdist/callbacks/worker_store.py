"""One worker's side of a training's checkpoints: its store, and its number among those that write a part."""

from __future__ import annotations

import json
import threading
from typing import Any

import tensorflow as tf
from absl import logging

from tfdist.callbacks.agreed_run import agree_on_run
from tfdist.keras_compat.agreement import numbers_of_all_workers
from tfdist.keras_compat.managed_strategies import elastic_group, num_replicas, worker_position
from tfdist.reporting.events import report_event
from tfdist.reporting.heartbeat import in_phase
from tfdist.snapshots import CheckpointStore

__all__ = ["WorkerStore"]

#: How long the chief waits for the parts of other workers. One that is lost sends none; the others of an elastic job
#: then wait for the chief, and put it out at their limit.
_PART_TIMEOUT_S, _ELASTIC_PART_TIMEOUT_S = 300.0, 30.0


class WorkerStore:
    """The store of one `fit`. When the members of an elastic job change, another one takes its place.

    Args:
        strategy: The model's strategy, if any.
        directory: Where the checkpoints are.
        **options: Others of `CheckpointStore`.

    Attributes:
        group: The members of an elastic job; None in others.
        task: This worker's number; 0 is the chief.
        num_tasks: How many workers write a part.
        store: The store; None until `agree` or `join`.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None, directory: str, **options: Any) -> None:
        self._strategy = strategy
        self._directory = directory
        self._options = options
        self.group = elastic_group(strategy)
        self.task, self.num_tasks = (0, 1) if strategy is None else worker_position(strategy)
        self.store: Any = None
        self._run = ""
        self._round = -1 if self.group is None else self.group.number
        self._told_step = -1

    @property
    def is_newcomer(self) -> bool:
        """Whether this worker has not been taken in yet."""
        return self.group is not None and self.group.is_newcomer

    def agree(self) -> str | None:
        """Agrees with the others on a name of the run. Collective.

        Returns:
            The checkpoint to go on from, if there is one.
        """
        agreed = agree_on_run(self._strategy, self._make_store)
        self.store, self._run = agreed.store, agreed.run
        return agreed.chosen

    def admit(self, **message: Any) -> None:
        """Takes newcomers in. Collective: every member calls it between the same two steps.

        Args:
            **message: JSON values for them; those of the first member count.
        """
        assert self.group is not None
        self.group.admit(json.dumps({"run": self._run, **message}).encode())
        self.follow_members()

    def join(self) -> dict[str, Any]:
        """Waits until the members take this newcomer in. Returns what they say."""
        assert self.group is not None
        message: dict[str, Any] = json.loads(self.group.join())
        self._run = message["run"]
        self._make_store_of_round()
        return message

    def follow_members(self) -> None:
        """Makes another store where the members have changed. A save in flight may wait for one that is gone."""
        if self.group is None or self.group.number == self._round:
            return
        self._start_closing()
        self._make_store_of_round()

    def meet(self) -> None:
        """Waits until every worker has written its part, and the chief all. Collective."""
        with in_phase("save"):
            self.store.wait()
        if self.num_tasks > 1:
            numbers_of_all_workers(self._strategy, [0])

    def tell_of_saves(self) -> None:
        """Tells the launcher's event log of a checkpoint that has become complete."""
        committed = self.store.last_committed
        if committed is not None and committed.step > self._told_step:
            self._told_step = committed.step
            report_event("saved", step=committed.step)

    def close(self, limit_s: float | None) -> None:
        """Ends the writing thread.

        Args:
            limit_s: How long a save that is in flight may go on; None for as long as it takes.
        """
        if self.store is None:
            return
        closing = self._start_closing()
        closing.join(limit_s)
        if closing.is_alive():
            logging.warning("The checkpoint that was being written when fit failed is left unfinished.")

    def _start_closing(self) -> threading.Thread:
        closing = threading.Thread(target=self.store.close, name="tfdist-checkpoint-end", daemon=True)
        closing.start()
        return closing

    def _make_store_of_round(self) -> None:
        assert self.group is not None
        self._round = self.group.number
        self.task, self.num_tasks = self.group.rank, self.group.num_members
        self.store = self._make_store(f"{(int(self._run, 16) + self._round) % 2**32:08x}")

    def _make_store(self, run: str) -> CheckpointStore:
        strategy = self._strategy
        return CheckpointStore(
            self._directory,
            task=self.task,
            num_tasks=self.num_tasks,
            run=run,
            part_timeout_s=_PART_TIMEOUT_S if self.group is None else _ELASTIC_PART_TIMEOUT_S,
            cluster={
                "strategy": "none" if strategy is None else type(strategy).__name__,
                "workers": self.num_tasks,
                "replicas": 1 if strategy is None else num_replicas(strategy),
            },
            **self._options,
        )
