"""What `fit`, `evaluate` and `predict` read under a synchronous strategy.

- Arrays, generators and a `tf.data.Dataset` of global batches (`auto_shard_policy` AUTO or DATA): a worker reads all of
  it and keeps its rows of each batch.
- A dataset with `auto_shard_policy` FILE: its own files, in batches of its share.
- A dataset with `auto_shard_policy` OFF: all of it, each batch being this worker's own.
- A function of `tf.distribute.InputContext`, or `strategy.distribute_datasets_from_function(...)`: what the function
  returns, batches of per-replica size.

In the last three the workers tell each other their row counts at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfdist.errors import ArgumentError, UnsupportedError, describe_problem
from tfdist.keras_compat import job_seed
from tfdist.keras_compat.agreement import any_worker
from tfdist.keras_compat.batch_shares import batch_shares
from tfdist.keras_compat.fit_watch import FitWatcher, claim_input
from tfdist.keras_compat.input_position import GlobalBatches, WatchedEpochs
from tfdist.keras_compat.managed_strategies import elastic_group, num_local_replicas, num_replicas, worker_position
from tfdist.keras_compat.own_batches import agree_on_num_batches, go_on_with_stand_ins
from tfdist.keras_compat.private_names import (
    ArrayDataAdapter,
    EpochIterator,
    array_slicing,
    auto_shard_files,
    tensorflow_trainer,
    tree,
)
from tfdist.keras_compat.row_sharding import check_batch_size, group_for_replicas, shard_rows, static_rows
from tfdist.keras_compat.shuffled_sequence import AgreedOrder

__all__ = [
    "SynchronousEpochIterator",
    "WatchedStockEpochs",
    "dataset_function",
    "global_batches",
    "in_agreed_order",
    "input_context",
    "refuse_endless",
]

_Policy = tf.data.experimental.AutoShardPolicy


def dataset_function(x: Any) -> Callable[[tf.distribute.InputContext], tf.data.Dataset] | None:
    """Returns the function of an input context that `x` is or carries, if any."""
    carried = getattr(x, "_dataset_fn", None)  # tf.distribute's DistributedDatasetsFromFunction
    if callable(carried):
        return carried
    is_data = isinstance(x, (tf.data.Dataset, tf.distribute.DistributedDataset)) or hasattr(x, "__getitem__")
    return x if callable(x) and not is_data else None


def input_context(strategy: tf.distribute.Strategy) -> tf.distribute.InputContext:
    """This worker's place among the input pipelines of the job."""
    worker, num_workers = worker_position(strategy)
    return tf.distribute.InputContext(
        num_input_pipelines=num_workers,
        input_pipeline_id=worker,
        num_replicas_in_sync=num_replicas(strategy),
    )


def refuse_endless(dataset: tf.data.Dataset, steps: int | None) -> None:
    """Raises `ArgumentError` for a dataset without an end when nothing says how long an epoch is."""
    if steps is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ArgumentError(
            describe_problem(
                "The dataset never ends, so the epoch would not either",
                received="steps_per_epoch=None (from the call), a dataset of infinite cardinality",
                expected="a number of steps for an endless dataset",
                fix="Pass steps_per_epoch to fit, steps to evaluate and predict, validation_steps for validation data.",
            )
        )


def _shuffled_arrays(adapter: ArrayDataAdapter, seed: int | None) -> tf.data.Dataset:
    """Batches of arrays in an order that all workers share and that differs from epoch to epoch.

    Keras draws the order with `tf.random.shuffle`, which repeats it every epoch when a seed is set, and differs between
    workers when none is (keras/src/trainers/data_adapters/array_data_adapter.py, `get_tf_dataset`).
    """
    inputs = tree.lists_to_tuples(array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow"))
    num_rows, batch_size = adapter._num_samples, adapter._batch_size

    @tf.autograph.experimental.do_not_convert
    def rows_in_order(seed: tf.Tensor) -> tf.data.Dataset:
        rows = tf.random.experimental.stateless_shuffle(tf.range(num_rows, dtype=tf.int64), seed=[seed, 0])
        return tf.data.Dataset.from_tensor_slices(rows).batch(batch_size)

    @tf.autograph.experimental.do_not_convert
    def take_rows(rows: tf.Tensor, data: Any) -> Any:
        def take(value: Any) -> Any:
            if isinstance(value, array_slicing.TensorflowSparseWrapper):
                return array_slicing.slice_tensorflow_sparse_wrapper(value, rows)
            if isinstance(value, (list, tuple, dict)):
                return None  # go on inside
            return tf.gather(value, rows, axis=0) if tf.is_tensor(value) else value

        return tree.traverse(take, data)

    seeds = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1)
    data = tf.data.Dataset.from_tensors(inputs).repeat()
    batches = tf.data.Dataset.zip((seeds.flat_map(rows_in_order), data))
    return batches.map(take_rows, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def in_agreed_order(x: Any, arguments: dict[str, Any], seed: int | None) -> tuple[Any, dict[str, Any]]:
    """Returns `x` and the other arguments of an epoch iterator, a PyDataset in an order by the shared seed."""
    if seed is not None and arguments.get("shuffle") and isinstance(x, keras.utils.PyDataset) and x.num_batches:
        return AgreedOrder(x, seed), {**arguments, "shuffle": False}
    return x, arguments


def global_batches(adapter: Any, seed: int | None) -> tf.data.Dataset:
    """The dataset of global batches of a data adapter; arrays that are shuffled come in an order by the shared seed."""
    shuffles = isinstance(adapter, ArrayDataAdapter) and adapter._shuffle is True
    return _shuffled_arrays(adapter, seed) if shuffles and seed is not None else adapter.get_tf_dataset()


class WatchedStockEpochs(WatchedEpochs, tensorflow_trainer.TFEpochIterator):
    """Keras's own epoch iterator, watched: for models of no strategy."""

    def __init__(self, watcher: FitWatcher, x: Any, *, distribute_strategy: tf.distribute.Strategy, **kwargs: Any):
        self._distribute_strategy = distribute_strategy
        seed = job_seed.agreed_seed()
        x, kwargs = in_agreed_order(x, kwargs, seed)
        EpochIterator.__init__(self, x, **kwargs)
        self._distributed_dataset = global_batches(self.data_adapter, seed).prefetch(tf.data.AUTOTUNE)
        self.batch_spec = self._distributed_dataset.element_spec
        self._watch(watcher)


def _own_files(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy) -> tf.data.Dataset:
    """This worker's own files, in batches of its share. Collective: if one worker has none, all raise."""
    worker, num_workers = worker_position(strategy)
    rows = static_rows(dataset.element_spec)
    check_batch_size(rows, num_workers, "the dataset's batch size")
    problem, own = "", dataset
    try:
        own = auto_shard_files(dataset, num_workers, worker)
        next(iter(own), None)  # the rewrite fails here
    except tf.errors.OpError as error:
        problem = error.message.splitlines()[0]
    if any_worker(strategy, bool(problem)):
        raise ArgumentError(
            describe_problem(
                "The dataset cannot be shared out by files",
                received=f"auto_shard_policy=FILE (from the dataset's options), {num_workers} workers; "
                f"tf.data says: {problem or 'of another worker, that it found no file for it'}",
                expected="a dataset that reads from at least as many files as there are workers",
                fix="Write more files, start fewer workers, or set "
                "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA.",
            )
        )
    if rows is None:
        return own
    share = (worker + 1) * rows // num_workers - worker * rows // num_workers
    return own.rebatch(share)


def _refuse_own_batches(received: str) -> UnsupportedError:
    return UnsupportedError(
        describe_problem(
            "Workers of an elastic job cannot have data of their own",
            received=f"{received} (from the call)",
            expected="a tf.data.Dataset of global batches, or arrays: their rows are shared out anew when a worker is "
            "lost or comes",
            fix="Pass the whole dataset, or start the job with a fixed number of workers: --workers N.",
        )
    )


def _split_own(dataset: tf.data.Dataset, num_local: int) -> tf.data.Dataset:
    """Splits batches that are this worker's own. Elements `(parts, num_rows)`, as of `group_for_replicas`."""

    @tf.autograph.experimental.do_not_convert
    def leave_out_total(parts: Any, num_rows: tf.Tensor, _: tf.Tensor) -> Any:
        return parts, num_rows

    return shard_rows(dataset, 0, num_local, num_local).map(leave_out_total)


class SynchronousEpochIterator(WatchedEpochs, tensorflow_trainer.TFEpochIterator):
    """Keras's epoch iterator over this worker's share of the data. Its iterators are plain `tf.data` iterators.

    Answers: `experimental_distribute_dataset` gives workers rows twice or never (unseeded shuffles), fails on batches
    that do not divide by the replicas, and its iterators cannot be saved.
    """

    def __init__(self, distribute_strategy: tf.distribute.Strategy, x: Any, **kwargs: Any) -> None:
        self._distribute_strategy = distribute_strategy
        num_local = num_local_replicas(distribute_strategy)
        worker, num_workers = worker_position(distribute_strategy)
        function = dataset_function(x)
        if function is not None:
            x = function(input_context(distribute_strategy))
            kwargs["shuffle"] = False
        if isinstance(x, tf.distribute.DistributedDataset):
            raise ArgumentError(
                describe_problem(
                    "The dataset has been distributed already",
                    received="a tf.distribute.DistributedDataset (from the call)",
                    expected="the tf.data.Dataset itself: fit, evaluate and predict share it out",
                    fix="Pass the dataset that was given to strategy.experimental_distribute_dataset.",
                )
            )
        watcher, is_training = claim_input()
        is_elastic = elastic_group(distribute_strategy) is not None
        seed = job_seed.agreed_seed() if num_workers > 1 or watcher is not None or is_elastic else None
        x, kwargs = in_agreed_order(x, kwargs, seed)
        EpochIterator.__init__(self, x, **kwargs)
        adapter = self.data_adapter
        dataset = global_batches(adapter, seed)
        if isinstance(adapter, ArrayDataAdapter):
            check_batch_size(adapter._batch_size, distribute_strategy.num_replicas_in_sync, "batch_size")
        refuse_endless(dataset, self.steps_per_epoch)
        policy = dataset.options().experimental_distribute.auto_shard_policy
        static_rows(dataset.element_spec)  # refuses a dataset that is not batched
        self._own_num_batches: int | None = None
        self._has_own_batches = True
        if is_elastic and (function is not None or policy in (_Policy.FILE, _Policy.OFF)):
            raise _refuse_own_batches(f"auto_shard_policy={policy.name}" if function is None else "a dataset function")
        if function is not None:
            dataset = group_for_replicas(dataset, num_local)
        elif num_workers > 1 and policy == _Policy.FILE:
            dataset = _split_own(_own_files(dataset, distribute_strategy), num_local)
        elif num_workers > 1 and policy == _Policy.OFF:
            dataset = _split_own(dataset, num_local)
        else:
            self._has_own_batches = False
            whole = GlobalBatches(dataset.prefetch(tf.data.AUTOTUNE))
            dataset = shard_rows(dataset, worker * num_local, num_local, num_replicas(distribute_strategy))
        if self._has_own_batches:
            cardinality = int(dataset.cardinality())
            self._own_num_batches = agree_on_num_batches(distribute_strategy, None if cardinality < 0 else cardinality)
            self._num_batches = self._own_num_batches
            dataset = go_on_with_stand_ins(dataset)
        self._spec = dataset.element_spec
        self.is_own = self._has_own_batches
        splits_in_step = watcher is not None or is_elastic or (is_training and batch_shares(distribute_strategy))
        self._distributed_dataset = whole if splits_in_step and not self.is_own else dataset
        self._watch(watcher)

    def reset(self) -> None:
        """As Keras's, with the number of batches on which the workers agreed."""
        super().reset()
        if self._has_own_batches:
            self._num_batches = self._own_num_batches

    @property
    def batch_spec(self) -> Any:
        """The spec of what one replica trains on."""
        return self._spec[0][0]
