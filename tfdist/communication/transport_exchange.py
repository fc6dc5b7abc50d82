"""The exchange on a transport of the project's: the tensors of a step go through NumPy, in one flat bucket a dtype."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.communication.step_timings import StepTimings
from tfdist.communication.transports import Transport
from tfdist.communication.transports.interface import Array
from tfdist.errors import TfdistError
from tfdist.reporting.heartbeat import in_phase, note_batch_ready

__all__ = ["TransportExchange"]

_SMALL_BYTES = 1 << 16  # below it, copying a tensor costs less than an array in Python
_BUCKET_BYTES = 1 << 23  # from it on, one more exchange costs less than waiting for the rest of the gradients


class TransportExchange:
    """Sums tensors between processes that have one replica each. Differentiable.

    Args:
        transport: What connects this process with the others.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        #: What ended an exchange. TensorFlow makes an error of its own of what Python raises within a graph.
        self.failure: TfdistError | None = None
        #: What the members spent their time on.
        self.timings = StepTimings()

    @property
    def is_timed(self) -> bool:
        """Always: it costs some bytes."""
        return True

    def sum(self, tensors: Sequence[Any], *, own_batch: tf.Tensor | None = None) -> list[Any]:
        """Sums tensors of numeric dtypes; see `Exchange`.

        `tf.IndexedSlices` are gathered: the rows of all replicas stand one after the other, in the order of the ranks.
        Making them dense would add up rows of one index, and an optimizer that clips by norm would see another norm
        than one device does.

        Where a network is between the members, large tensors are summed in several exchanges, the last ones first: of
        gradients, which a step works out from the last layer to the first, the graph exchanges these while it works
        out the others. The members' exchanges are in the same order, because a graph keeps that of its calls.

        Timings travel with the first dense tensors of float32 or float64.
        """
        sums: list[Any] = [None] * len(tensors)
        sparse: list[int] = []
        dense: dict[tf.DType, list[int]] = {}
        for position, tensor in enumerate(tensors):
            if isinstance(tensor, tf.IndexedSlices):
                sparse.append(position)
            else:
                dense.setdefault(tensor.dtype, []).append(position)
        for dtype, positions in dense.items():
            values = [tf.convert_to_tensor(tensors[p]) for p in positions]
            sizes = [_static_bytes(value) or 0 for value in values]
            for bucket in _last_first(sizes) if self.transport.crosses_network else [range(len(values))]:
                timed = own_batch if dtype in (tf.float32, tf.float64) else None
                for k, total in zip(bucket, self._sum_packed([values[k] for k in bucket], timed), strict=True):
                    sums[positions[k]] = total
                own_batch = None if timed is not None else own_batch
        for position in sparse:
            sums[position] = self._gather_slices(tensors[position])
        return sums

    def gather(self, rows: tf.Tensor) -> tf.Tensor:
        """The rows of all members one after the other, in the order of the ranks. Collective.

        Args:
            rows: A tensor of a numeric dtype, with the same shape behind the first axis on all members.
        """
        with tf.device("CPU:0"):
            (gathered,) = self._call(self._gather_arrays, [rows])
        gathered.set_shape([None, *rows.shape[1:]])
        return gathered

    def sum_array(self, array: Array) -> Array:
        """Sums an array outside of any graph. Collective."""
        with in_phase("exchange"):
            return self.transport.all_reduce_sum([array])[0]

    def _sum_packed(self, values: list[tf.Tensor], own_batch: tf.Tensor | None) -> list[tf.Tensor]:
        """Sums dense tensors of one dtype. In a graph, small ones go through Python as one array."""
        sizes = [] if tf.executing_eagerly() else [_static_bytes(value) for value in values]
        small = [k for k, size in enumerate(sizes) if size is not None and size < _SMALL_BYTES]
        if len(small) < 2:
            return self._sum_dense(*values, own_batch=own_batch)
        large = [k for k in range(len(values)) if k not in set(small)]
        shapes = [values[k].shape.as_list() for k in small]
        with tf.device("CPU:0"):
            packed = tf.concat([tf.reshape(values[k], [-1]) for k in small], axis=0)
            checksum = zlib.crc32(repr(shapes).encode())
            packed_first = [packed, *(values[k] for k in large)]
            total, *sums = self._sum_dense(*packed_first, checksum=checksum, own_batch=own_batch)
            parts = tf.split(total, [math.prod(shape) for shape in shapes])
            parts = [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]
        by_position = dict(zip([*small, *large], [*parts, *sums], strict=True))
        return [by_position[k] for k in range(len(values))]

    def _sum_dense(self, *values: tf.Tensor, checksum: int = 0, own_batch: tf.Tensor | None = None) -> list[tf.Tensor]:
        if own_batch is None:
            exchange, more = functools.partial(self.transport.all_reduce_sum, checksum=checksum), []
        else:
            exchange, more = functools.partial(self._sum_timed, checksum=checksum), [own_batch]

        @tf.custom_gradient
        def differentiable(*values: tf.Tensor) -> Any:
            sums = self._call(exchange, [*values, *more], num_results=len(values))
            for total, value in zip(sums, values, strict=True):
                total.set_shape(value.shape)
            # Every replica's sum depends on every replica's value, so its gradient is the sum of theirs.
            return sums, functools.partial(self._sum_dense, checksum=checksum)

        with tf.device("CPU:0"):
            sums = differentiable(*values)
        return list(sums) if isinstance(sums, (list, tuple)) else [sums]

    def _sum_timed(self, arrays: Sequence[Array], *, checksum: int) -> list[Array]:
        """Sums all arrays but the last one, which tells of this member's batch. The timings travel along."""
        *parts, (ready, rows) = arrays
        note_batch_ready(float(ready))
        transport = self.transport
        table = self.timings.own_table(
            transport.rank, transport.num_members, float(rows), parts[0].dtype, transport.take_deliveries()
        )
        *sums, table = self.transport.all_reduce_sum([*parts, table], checksum=checksum)
        self.timings.take(table)
        return sums

    def _gather_arrays(self, parts: Sequence[Array]) -> list[Array]:
        return [np.concatenate(self.transport.all_gather(part)) for part in parts]

    def _gather_slices(self, slices: tf.IndexedSlices) -> tf.IndexedSlices:
        with tf.device("CPU:0"):
            values, indices = self._call(self._gather_arrays, [slices.values, slices.indices])
        values.set_shape([None, *slices.values.shape[1:]])
        indices.set_shape([None])
        return tf.IndexedSlices(values, indices, slices.dense_shape)

    def _call(
        self,
        exchange: Callable[[Sequence[Any]], list[Any]],
        tensors: Sequence[tf.Tensor],
        num_results: int | None = None,
    ) -> list[tf.Tensor]:
        """Calls `exchange` with arrays from within a graph. TensorFlow keeps such calls in the order of the program.

        It returns arrays of the dtypes of the first `num_results` tensors, or of all.
        """

        def call(*arrays: Any) -> list[Any]:
            try:
                with in_phase("exchange"):
                    return exchange([np.asarray(array) for array in arrays])
            except TfdistError as error:
                self.failure = error
                raise

        results = tf.numpy_function(call, tensors, [tensor.dtype for tensor in tensors[:num_results]])
        return list(results) if isinstance(results, (list, tuple)) else [results]


def _static_bytes(value: tf.Tensor) -> int | None:
    num_elements = value.shape.num_elements()
    return None if num_elements is None else num_elements * value.dtype.size


def _last_first(sizes: Sequence[int]) -> list[list[int]]:
    """Divides tensors of so many bytes into buckets of at least `_BUCKET_BYTES`, from the last to the first."""
    buckets: list[list[int]] = [[]]
    filled = 0
    for k in reversed(range(len(sizes))):
        if filled >= _BUCKET_BYTES:
            buckets.append([])
            filled = 0
        buckets[-1].append(k)
        filled += sizes[k]
    return buckets
