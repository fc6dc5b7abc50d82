"""The exchange on TensorFlow's own collectives (NCCL on GPUs, its ring over gRPC on CPUs)."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["all_reduce_sum"]


def all_reduce_sum(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Sums small dense tensors over all replicas of the job, in one exchange per dtype.

    Must be called by every replica, in replica context, with tensors of the same shapes and dtypes in the same order.
    Gradients take `tf.distribute.ReplicaContext.all_reduce` itself, which packs them and knows `tf.IndexedSlices`.

    Args:
        tensors: Tensors of any static shape and of numeric dtypes.

    Returns:
        The sums, in the order and shapes given.
    """
    replica_context = tf.distribute.get_replica_context()
    sums: list[tf.Tensor | None] = [None] * len(tensors)
    by_dtype: dict[tf.DType, list[int]] = {}
    for position, tensor in enumerate(tensors):
        by_dtype.setdefault(tensor.dtype, []).append(position)
    for positions in by_dtype.values():
        flat = tf.concat([tf.reshape(tensors[p], [-1]) for p in positions], axis=0)
        total = replica_context.all_reduce(tf.distribute.ReduceOp.SUM, flat)
        pieces = tf.split(total, [tf.size(tensors[p]) for p in positions], num=len(positions))
        for p, piece in zip(positions, pieces, strict=True):
            sums[p] = tf.ensure_shape(tf.reshape(piece, tf.shape(tensors[p])), tensors[p].shape)
    return sums
