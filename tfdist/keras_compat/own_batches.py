"""Pipelines whose batches are this worker's own: files of its own, or what a dataset function returns.

Workers may then have unequal numbers of batches. A worker whose data have ended goes on with stand-in batches, of which
no row counts, until all have ended: the epoch ends together and no row is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from tfdist.keras_compat.agreement import numbers_of_all_workers
from tfdist.keras_compat.private_names import tree

__all__ = ["agree_on_num_batches", "counted_together", "go_on_with_stand_ins", "relaxed"]


def go_on_with_stand_ins(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes a dataset of elements `(parts, num_rows)` endless; at its end come stand-ins with `num_rows` 0."""
    parts_spec, num_rows_spec = dataset.element_spec
    parts = tree.map_structure(_stand_in, parts_spec)
    stand_in = tf.data.Dataset.from_tensors((parts, tf.zeros(num_rows_spec.shape, num_rows_spec.dtype))).repeat()
    return _with_unknown_rows(dataset).concatenate(_with_unknown_rows(stand_in))


def _with_unknown_rows(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Forgets the number of rows of the parts, so that a stand-in of one row has the same spec."""

    def forget(spec: Any) -> Any:
        if not isinstance(spec, tf.TensorSpec):
            return spec
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)

    parts_spec, num_rows_spec = dataset.element_spec
    specs = (tree.map_structure(forget, parts_spec), num_rows_spec)

    def relax(parts: Any, num_rows: Any) -> Any:
        return tree.map_structure(relaxed, parts, specs[0]), num_rows

    return dataset.map(relax, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def relaxed(value: Any, spec: Any) -> Any:
    """A tensor of which no more is known than a spec says: Keras does other things where it knows the rows."""
    if not isinstance(spec, tf.TensorSpec):
        return value
    return tf.compat.v1.placeholder_with_default(value, spec.shape)


def _stand_in(spec: Any) -> Any:
    """One row of zeros (of empty strings) that fits a spec."""
    if isinstance(spec, tf.RaggedTensorSpec):
        inner = spec.shape[spec.ragged_rank + 1 :]
        value = tf.zeros([0, *(d or 1 for d in inner)], spec.dtype)
        for _ in range(spec.ragged_rank - 1):
            value = tf.RaggedTensor.from_row_splits(value, tf.zeros([1], spec.row_splits_dtype))
        return tf.RaggedTensor.from_row_splits(value, tf.zeros([2], spec.row_splits_dtype))
    if isinstance(spec, tf.SparseTensorSpec):
        shape = [1, *(d or 1 for d in spec.shape[1:])]
        return tf.SparseTensor(tf.zeros([0, len(shape)], tf.int64), tf.zeros([0], spec.dtype), shape)
    if isinstance(spec, tf.TensorSpec):
        return tf.zeros([1, *(d or 1 for d in spec.shape[1:])], spec.dtype)
    return None


def agree_on_num_batches(strategy: tf.distribute.Strategy, num_batches: int | None) -> int | None:
    """Returns the largest number of batches that any worker has, `None` if one does not know its own. Collective."""
    own = -1 if num_batches is None else num_batches
    counts = numbers_of_all_workers(strategy, [own])[:, 0].tolist()
    if min(counts) < 0:
        return None
    if len(set(counts)) > 1:
        logging.warning(
            "The workers have unequal numbers of batches, %s; an epoch has %d steps, and workers without rows wait.",
            counts,
            max(counts),
        )
    return max(counts)


def counted_together(strategy: tf.distribute.Strategy, iterator: tf.data.Iterator) -> Iterator[Any]:
    """Adds to each element `(parts, num_rows)` the rows of all workers; ends when no worker has any. Collective."""
    for parts, num_rows in iterator:
        num_rows_global = int(numbers_of_all_workers(strategy, [int(tf.reduce_sum(num_rows))]).sum())
        if num_rows_global == 0:
            return
        yield parts, num_rows, tf.constant(num_rows_global, tf.int64)
