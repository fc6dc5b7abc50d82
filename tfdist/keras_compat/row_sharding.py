"""Turns a dataset of global batches into one of this worker's shares.

Every worker runs the same input pipeline and keeps its own rows of each global batch. So all workers make the same
number of steps, every row is trained on exactly once, and a batch that does not divide by the replicas is no special
case. A worker reads what the others read; tf.data's FILE policy and dataset functions avoid that (`input_pipeline.py`).

One element of the result is `(parts, num_rows, num_rows_global)`: `parts` is a tuple with the rows of each local
replica, `num_rows` an int64 vector with how many of them count, `num_rows_global` an int64 scalar. A replica that gets
no row of a batch is given its first row as a stand-in with `num_rows` 0, because layers cannot take empty batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.batch_shares import BatchShares
from tfdist.keras_compat.private_names import tree
from tfdist.planning import row_bounds

__all__ = [
    "count_rows",
    "group_for_replicas",
    "rows_between",
    "shard_rows",
    "split_batch",
    "split_by_shares",
    "static_rows",
]


def _is_absent(value: Any) -> bool:
    """Whether a leaf is `None`, an empty optional, or the spec of one."""
    return getattr(value, "shape", None) is None


def _element(dataset: tf.data.Dataset, arguments: tuple[Any, ...]) -> Any:
    """Undoes `Dataset.map`'s unpacking of tuples."""
    return arguments if isinstance(dataset.element_spec, tuple) else arguments[0]


def _first_leaf(structure: Any) -> Any:
    for leaf in tree.flatten(structure):
        if not _is_absent(leaf):
            return leaf
    raise ArgumentError(
        describe_problem(
            "A batch of the dataset holds no tensor",
            received=f"element={structure!r} (from the dataset)",
            expected="(inputs, targets) or (inputs, targets, sample_weight), each with a batch axis",
            fix="Look at `dataset.element_spec`.",
        )
    )


def count_rows(batch: Any) -> tf.Tensor:
    """Rows of a batch, an int64 scalar."""
    leaf = _first_leaf(batch)
    if isinstance(leaf, tf.RaggedTensor):
        return tf.cast(leaf.nrows(), tf.int64)
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    return tf.shape(leaf, out_type=tf.int64)[0]


def static_rows(element_spec: Any) -> int | None:
    """Rows of a batch where the dataset's `element_spec` says so.

    Raises:
        ArgumentError: When the dataset has no batch axis.
    """
    leaf = _first_leaf(element_spec)
    if leaf.shape.rank == 0:
        raise ArgumentError(
            describe_problem(
                "The dataset is not batched",
                received=f"element_spec={element_spec!r} (from the dataset)",
                expected="elements that are global batches, with the rows along the first axis",
                fix="Call `dataset.batch(global_batch_size)` before `fit`, `evaluate` or `predict`.",
            )
        )
    return None if leaf.shape.rank is None else leaf.shape[0]


def rows_between(value: Any, start: Any, stop: Any) -> Any:
    """The rows from `start` to before `stop` of one tensor (dense, ragged or sparse) of a batch."""
    if _is_absent(value):
        return value
    if isinstance(value, tf.SparseTensor):
        size = tf.concat([[tf.cast(stop - start, tf.int64)], value.dense_shape[1:]], axis=0)
        begin = tf.concat([[tf.cast(start, tf.int64)], tf.zeros_like(value.dense_shape[1:])], axis=0)
        return tf.sparse.slice(value, begin, size)
    return value[start:stop]


def split_batch(
    batch: Any, first_replica: int, num_local: int, num_replicas: int, rows: int | None = None
) -> tuple[Any, Any, Any]:
    """Returns `(parts, num_rows, num_rows_global)` of one global batch.

    Args:
        batch: Nested structure of tensors (dense, ragged or sparse) with the rows along the first axis.
        first_replica: Index in the job of this worker's first replica.
        num_local: Replicas of this worker.
        num_replicas: Replicas of the job.
        rows: Rows of the batch, where known when the pipeline is built.
    """
    total: Any = count_rows(batch) if rows is None else rows
    replicas = range(first_replica, first_replica + num_local)
    bounds = [row_bounds(total, replica, num_replicas) for replica in replicas]
    return _take_rows(batch, bounds, total, may_be_empty=rows is None)


def split_by_shares(batch: Any, shares: BatchShares, worker: int) -> tuple[Any, Any, Any]:
    """Returns `(parts, num_rows, num_rows_global)` of one global batch for a worker of one replica."""
    total = count_rows(batch)
    return _take_rows(batch, [shares.bounds(total, worker)], total, may_be_empty=True)


def _take_rows(
    batch: Any, bounds: Sequence[tuple[Any, Any]], total: Any, *, may_be_empty: bool
) -> tuple[Any, Any, Any]:
    parts, counts = [], []
    for start, stop in bounds:
        counts.append(tf.cast(stop - start, tf.int64))
        if may_be_empty:  # keep one row where there is none: see the head of this file
            stand_in = tf.cast(stop == start, tf.int64)
            start, stop = start * (1 - stand_in), stop * (1 - stand_in) + stand_in  # noqa: PLW2901
        parts.append(tree.map_structure(lambda v, a=start, b=stop: rows_between(v, a, b), batch))
    return tuple(parts), tf.stack(counts), tf.cast(total, tf.int64)


def shard_rows(dataset: tf.data.Dataset, first_replica: int, num_local: int, num_replicas: int) -> tf.data.Dataset:
    """Maps a dataset of global batches to this worker's shares of them.

    Raises:
        ArgumentError: When the dataset is not batched, or its batches have fewer rows than there are replicas.
    """
    rows = static_rows(dataset.element_spec)
    check_batch_size(rows, num_replicas, "the dataset's batch size")

    @tf.autograph.experimental.do_not_convert
    def share(*batch: Any) -> Any:
        return split_batch(_element(dataset, batch), first_replica, num_local, num_replicas, rows)

    return dataset.map(share, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def check_batch_size(rows: int | None, num_replicas: int, origin: str) -> None:
    """Raises `ArgumentError` when a global batch of `rows` rows cannot give every replica one."""
    if rows is not None and rows < num_replicas:
        raise ArgumentError(
            describe_problem(
                "The global batch is smaller than the number of replicas",
                received=f"global batch size={rows} (from {origin})",
                expected=f"at least {num_replicas}, a row for each of the {num_replicas} replicas",
                fix=f"Use a batch size of {num_replicas} or more, or start fewer workers.",
            )
        )


def group_for_replicas(dataset: tf.data.Dataset, num_local: int) -> tf.data.Dataset:
    """Deals consecutive batches of a dataset of per-replica batches to this worker's replicas.

    Its elements are `(parts, num_rows)`: what other workers have, only an exchange can tell.
    """

    @tf.autograph.experimental.do_not_convert
    def deal(*parts: Any) -> Any:
        return tuple(parts), tf.stack([count_rows(part) for part in parts])

    if num_local == 1:
        deal_one = tf.autograph.experimental.do_not_convert(lambda *batch: deal(_element(dataset, batch)))
        return dataset.map(deal_one, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)
    dealt = tuple(dataset.shard(num_local, index) for index in range(num_local))
    return tf.data.Dataset.zip(dealt).map(deal, deterministic=True).prefetch(tf.data.AUTOTUNE)
