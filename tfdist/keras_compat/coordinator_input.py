"""What `fit`, `evaluate` and `predict` read under parameter servers.

- Arrays, generators, a `tf.data.Dataset`: the coordinator reads, and sends each batch with its step. An epoch is every
  row once, also when a worker is lost. Bounded by the coordinator's network.
- A function of `tf.distribute.InputContext`, or `strategy.distribute_datasets_from_function(...)`: every worker reads
  its own copy. An epoch is `steps_per_epoch` steps of whoever is free; rows may come twice or never. Scales with the
  workers.
"""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf

from tfdist.errors import ArgumentError, UnsupportedError, describe_problem
from tfdist.keras_compat import job_seed
from tfdist.keras_compat.fit_watch import claim_input
from tfdist.keras_compat.input_pipeline import (
    dataset_function,
    global_batches,
    in_agreed_order,
    refuse_endless,
)
from tfdist.keras_compat.input_position import WatchedEpochs
from tfdist.keras_compat.managed_strategies import cluster_of
from tfdist.keras_compat.private_names import EpochIterator, tensorflow_trainer
from tfdist.keras_compat.row_sharding import check_batch_size, static_rows

__all__ = ["CoordinatorBatches", "CoordinatorEpochIterator", "PendingBatch", "WorkerIterator"]


class PendingBatch:
    """A batch to predict on, which knows those after it, so that they can be scheduled ahead.

    Attributes:
        data: The batch.
        following: The batches read ahead.
        remote: The scheduled step, once there is one.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self.following: tuple[PendingBatch, ...] = ()
        self.remote: Any = None


class CoordinatorBatches:
    """An iterator over the batches that the coordinator reads."""

    def __init__(self, dataset: tf.data.Dataset, num_ahead: int) -> None:
        self.element_spec = dataset.element_spec
        self.iterator = iter(dataset)
        self._num_ahead = num_ahead
        self._ahead: collections.deque[PendingBatch] = collections.deque()

    def take(self, count: int) -> list[Any]:
        """Returns up to `count` batches; raises `StopIteration` when there is none."""
        batches = [batch for _, batch in zip(range(count), self.iterator, strict=False)]
        if not batches:
            raise StopIteration
        return batches

    def __iter__(self) -> CoordinatorBatches:
        return self

    def __next__(self) -> PendingBatch:
        for data in self.iterator:
            self._ahead.append(PendingBatch(data))
            if len(self._ahead) > self._num_ahead:
                break
        if not self._ahead:
            raise StopIteration
        batch = self._ahead.popleft()
        batch.following = tuple(self._ahead)
        return batch


class WorkerIterator:
    """An iterator that stands for one on each worker."""

    def __init__(self, per_worker: Any) -> None:
        self.per_worker = per_worker

    def __iter__(self) -> WorkerIterator:
        return self

    def __next__(self) -> Any:
        raise UnsupportedError(
            describe_problem(
                "Only fit and evaluate can read from a dataset function under parameter servers",
                received="a dataset function (from the call to predict)",
                expected="a dataset or arrays: predictions are returned in the order of their rows",
                fix="Pass the dataset itself to predict.",
            )
        )


class _OnCoordinator:
    """Makes a `CoordinatorBatches` when iterated."""

    def __init__(self, dataset: tf.data.Dataset, num_ahead: int) -> None:
        self._dataset, self._num_ahead = dataset, num_ahead

    def __iter__(self) -> CoordinatorBatches:
        return CoordinatorBatches(self._dataset, self._num_ahead)


class _OnWorkers:
    """Makes a `WorkerIterator` when iterated."""

    def __init__(self, strategy: tf.distribute.Strategy, function: Any) -> None:
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._dataset = coordinator.create_per_worker_dataset(
            lambda: strategy.distribute_datasets_from_function(function)
        )

    def __iter__(self) -> WorkerIterator:
        return WorkerIterator(iter(self._dataset))


class CoordinatorEpochIterator(WatchedEpochs, tensorflow_trainer.TFEpochIterator):
    """Keras's epoch iterator under parameter servers.

    Answers: Keras calls `experimental_distribute_dataset`, which a parameter-server strategy cannot do outside of
    `ClusterCoordinator.create_per_worker_dataset` (keras issue 18624).
    """

    def __init__(self, distribute_strategy: tf.distribute.Strategy, x: Any, **kwargs: Any) -> None:
        self._distribute_strategy = distribute_strategy
        num_ahead = 2 * cluster_of(distribute_strategy).num_workers
        function = dataset_function(x)
        if function is not None:
            x = function(tf.distribute.InputContext(1, 0, distribute_strategy.num_replicas_in_sync))
            kwargs["shuffle"] = False
        watcher, _ = claim_input()
        seed = None if watcher is None else job_seed.agreed_seed()
        x, kwargs = in_agreed_order(x, kwargs, seed)
        EpochIterator.__init__(self, x, **kwargs)
        dataset = global_batches(self.data_adapter, seed)
        if watcher is not None:
            dataset = dataset.prefetch(tf.data.AUTOTUNE)
        refuse_endless(dataset, self.steps_per_epoch)
        rows = static_rows(dataset.element_spec)
        check_batch_size(rows, distribute_strategy.num_replicas_in_sync, "the dataset's batch size")
        self.batch_spec = dataset.element_spec
        if function is None:
            self._distributed_dataset: Any = _OnCoordinator(dataset, num_ahead)
            self._watch(watcher)
            return
        if int(dataset.cardinality()) != tf.data.INFINITE_CARDINALITY:
            raise ArgumentError(
                describe_problem(
                    "Under parameter servers a dataset function must return an endless dataset",
                    received=f"a dataset of cardinality {int(dataset.cardinality())} (from the dataset function)",
                    expected="an endless dataset: faster workers take more batches, so none may run out",
                    fix="End the function with `.repeat()` and pass steps_per_epoch, or pass the dataset itself.",
                )
            )
        self._distributed_dataset = _OnWorkers(distribute_strategy, function)
        self._watch(watcher)

    def tf_sync(self) -> None:
        """Does nothing: `AsynchronousLogs.final` waits for the steps under way."""
