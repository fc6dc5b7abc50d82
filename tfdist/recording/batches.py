"""The rows of the recorded steps: kept as the replicas saw them, and given to the single device as global batches.

So a shuffle, an unseeded augmentation or an order of files is no difference between the runs. Whether the replicas saw
rows twice is compared by digests of the rows.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat import input_pipeline
from tfdist.keras_compat.private_names import tree
from tfdist.keras_compat.row_sharding import rows_between
from tfdist.recording.recorder import Recorder

__all__ = ["keeping_batches", "note_own_rows", "replay_batches", "rows_directory"]


def rows_directory(directory: Path, worker: int) -> Path:
    """Where a worker leaves the rows that it trained on."""
    return directory / f"rows-{worker}"


@contextlib.contextmanager
def keeping_batches(recorder: Recorder, steps: int, path: Path) -> Iterator[None]:
    """While `fit` runs on replicas: ends its input after `steps` steps, keeps it, and notes digests of the rows."""
    iterator_class = input_pipeline.SynchronousEpochIterator
    original = iterator_class.__init__
    is_first = True

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal is_first
        original(self, *args, **kwargs)
        if not is_first:
            return
        is_first = False
        kept = self._distributed_dataset.take(steps).cache()
        for step, element in enumerate(kept):  # reads all of it, so that `fit` gets the same from the cache
            recorder.step = step
            for index, (part, rows) in enumerate(zip(element[0], element[1].numpy(), strict=True)):
                recorder.note("row", "", recorder.first_replica + index, _digests(part, int(rows)))
        recorder.step = 0
        kept.save(str(path))
        self._distributed_dataset = kept

    iterator_class.__init__ = initialize  # type: ignore[method-assign]
    try:
        yield
    finally:
        iterator_class.__init__ = original  # type: ignore[method-assign]


def replay_batches(directory: Path, *, backwards: bool) -> tf.data.Dataset:
    """Puts the rows of all replicas together again, as global batches.

    Args:
        directory: Where the workers left them.
        backwards: Whether each batch has its rows in reverse order.

    Raises:
        ArgumentError: There is no batch, or the workers' parts of one cannot be joined.
    """
    num_workers = len(list(directory.glob("rows-*")))
    workers = [tf.data.Dataset.load(str(rows_directory(directory, worker))) for worker in range(num_workers)]
    batches: list[tf.data.Dataset] = []
    for elements in zip(*workers, strict=True):
        parts = [
            tree.map_structure(lambda value, n=n: rows_between(value, 0, n), part)
            for element in elements
            for part, n in zip(element[0], element[1].numpy().tolist(), strict=True)
            if n > 0
        ]
        if not parts:
            continue
        batch = tree.map_structure(lambda *values: _join(values), *parts)
        batch = tree.map_structure(_reverse, batch) if backwards else batch
        batches.append(tf.data.Dataset.from_tensors(batch))
    if not batches:
        raise ArgumentError(
            describe_problem(
                "No step was trained, so there is nothing to compare",
                received="a dataset without batches",
                expected="a dataset of at least one batch",
                fix="Look at what the dataset yields.",
            )
        )
    return functools.reduce(tf.data.Dataset.concatenate, batches)  # its spec is what all batches have in common


def note_own_rows(recorder: Recorder, x: Any, num_batches: int) -> None:
    """Notes digests of the rows that a dataset, or a function of an input context, gives to a single device."""
    function = input_pipeline.dataset_function(x)
    if function is not None:
        context = tf.distribute.InputContext(num_input_pipelines=1, input_pipeline_id=0, num_replicas_in_sync=1)
        x = function(context)
    if not isinstance(x, tf.data.Dataset):
        return
    for step, batch in enumerate(x.take(num_batches)):
        recorder.step = step
        recorder.note("own_row", "", 0, _digests(batch, None))
    recorder.step = 0


def _digests(batch: Any, num_rows: int | None) -> np.ndarray[Any, Any]:
    """A 64-bit number for each row."""
    rows_of = [_rows_as_bytes(leaf) for leaf in tree.flatten(batch) if leaf is not None]
    count = len(rows_of[0]) if num_rows is None else num_rows
    if any(len(rows) < count for rows in rows_of):
        raise ArgumentError(
            describe_problem(
                "The parts of a batch have different numbers of rows",
                received=f"{', '.join(str(len(rows)) for rows in rows_of)} rows (from the dataset)",
                expected="inputs, targets and weights with the same rows along their first axis",
                fix="Call `dataset.batch(global_batch_size)`, if that is missing, and look at `dataset.element_spec`.",
            )
        )
    digests = np.zeros(count, np.uint64)
    for row in range(count):
        digest = hashlib.blake2b(digest_size=8)
        for rows in rows_of:
            digest.update(rows[row])
        digests[row] = int.from_bytes(digest.digest(), "little")
    return digests


def _rows_as_bytes(value: Any) -> list[bytes]:
    if isinstance(value, tf.RaggedTensor):
        return [repr(row).encode() for row in value.to_list()]
    array = (tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value).numpy()
    return [repr(row.tolist()).encode() if array.dtype == object else row.tobytes() for row in map(np.asarray, array)]


def _join(values: Any) -> Any:
    if values[0] is None:
        return None
    if isinstance(values[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(values))
    shapes = {str(value.shape[1:]) for value in values}
    if len(shapes) > 1 and not isinstance(values[0], tf.RaggedTensor):
        raise ArgumentError(
            describe_problem(
                "The replicas' parts of a batch do not make one batch for a single device",
                received=f"rows of the shapes {', '.join(sorted(shapes))} on different replicas",
                expected="rows of one shape, or ragged ones",
                fix="Pad all rows to one length, as with `padded_batch(size, padded_shapes=...)`, in the dataset.",
            )
        )
    return tf.concat(list(values), axis=0)


def _reverse(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tf.SparseTensor):
        rows = value.dense_shape[0] - 1 - value.indices[:, :1]
        indices = tf.concat([rows, value.indices[:, 1:]], axis=1)
        return tf.sparse.reorder(tf.SparseTensor(indices, value.values, value.dense_shape))
    rows = value.nrows() if isinstance(value, tf.RaggedTensor) else tf.shape(value, out_type=tf.int64)[0]
    return tf.gather(value, tf.range(rows - 1, -1, -1))
