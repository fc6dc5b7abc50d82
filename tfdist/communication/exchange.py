"""How the replicas of a synchronous job sum tensors within a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfdist.errors import TfdistError

__all__ = ["CollectiveExchange", "Exchange"]

Gradient = Any  # tf.Tensor or tf.IndexedSlices


class Exchange(Protocol):
    """Sums tensors over all replicas of the job.

    Must be called by every replica, in replica context, as often as the others, with tensors of the same dtypes and
    shapes in the same order.
    """

    #: The error of the project's that ended an exchange, if any.
    failure: TfdistError | None

    def sum(self, tensors: Sequence[Gradient], *, own_batch: tf.Tensor | None = None) -> list[Gradient]:
        """Returns the sums, in the order and shapes given. `tf.IndexedSlices` may come back dense.

        Args:
            tensors: What to sum.
            own_batch: Of the exchange of gradients, a float64 vector: when this replica's batch was there, by
                `tf.timestamp`, or 0 where that is not known; and how many rows it has. With it the replicas tell each
                other what they spend their time on, if the exchange can.
        """
        ...


class CollectiveExchange:
    """The exchange on TensorFlow's own collectives: NCCL on GPUs, its ring over gRPC on CPUs.

    `tf.distribute.ReplicaContext.all_reduce` packs tensors of one dtype into one collective, and gathers
    `tf.IndexedSlices` (tensorflow/python/distribute/cross_device_ops.py, `CollectiveAllReduce`). Differentiable.
    """

    failure: TfdistError | None = None

    def sum(self, tensors: Sequence[Gradient], *, own_batch: tf.Tensor | None = None) -> list[Gradient]:  # noqa: ARG002
        """Sums tensors of any dtypes, one collective for each dtype; see `Exchange`. No timings travel."""
        if not tensors:
            return []
        context = tf.distribute.get_replica_context()
        sums: list[Gradient] = [None] * len(tensors)
        by_dtype: dict[tf.DType, list[int]] = {}
        for position, tensor in enumerate(tensors):
            by_dtype.setdefault(tensor.dtype, []).append(position)
        for positions in by_dtype.values():
            # The value of a variable has no device of its own, which all_reduce needs: take one on the replica's.
            values = [
                t if isinstance(t, tf.IndexedSlices) else tf.identity(t) for t in map(tensors.__getitem__, positions)
            ]
            reduced = context.all_reduce(tf.distribute.ReduceOp.SUM, values)
            for position, value in zip(positions, reduced, strict=True):
                sums[position] = value
        return sums
