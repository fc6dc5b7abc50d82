"""How the replicas of a synchronous job sum tensors within a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfdist.communication.replica_timings import ReplicaTimings
from tfdist.communication.step_timings import StepTimings
from tfdist.errors import TfdistError

__all__ = ["CollectiveExchange", "Exchange"]

_TIMED = (tf.float32, tf.float64)
Gradient = Any  # tf.Tensor or tf.IndexedSlices


class Exchange(Protocol):
    """Sums tensors over all replicas of the job.

    Must be called by every replica, in replica context, as often as the others, with tensors of the same dtypes and
    shapes in the same order.
    """

    #: The error of the project's that ended an exchange, if any.
    failure: TfdistError | None
    #: What the replicas spend their time on.
    timings: StepTimings

    @property
    def is_timed(self) -> bool:
        """Whether steps tell of it. A step asks when it is traced."""
        ...

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

    def __init__(self) -> None:
        self.failure: TfdistError | None = None
        self.timings = StepTimings()
        self._replicas: ReplicaTimings | None = None

    @property
    def is_timed(self) -> bool:
        """Only where somebody wants it: calling Python from the graph takes time."""
        return self.timings.is_wanted

    def sum(self, tensors: Sequence[Gradient], *, own_batch: tf.Tensor | None = None) -> list[Gradient]:
        """Sums tensors of any dtypes, one collective for each dtype; see `Exchange`.

        Timings travel with dense tensors of float32 or float64.
        """
        if not tensors:
            return []
        context = tf.distribute.get_replica_context()
        dtype = next((t.dtype for t in tensors if t.dtype in _TIMED and not isinstance(t, tf.IndexedSlices)), None)
        if own_batch is None or dtype is None or not self.is_timed:
            return self._sum(context, tensors)
        if self._replicas is None:
            num_local = len(context.strategy.extended.worker_devices)
            self._replicas = ReplicaTimings(self.timings, context.num_replicas_in_sync, num_local)
        replica = context.replica_id_in_sync_group
        values = [t.values if isinstance(t, tf.IndexedSlices) else t for t in tensors]
        table = self._replicas.own_table(replica, own_batch, [v for v in values if tf.is_tensor(v)], dtype)
        *sums, table = self._sum(context, [*tensors, table])
        self._replicas.take(replica, table)
        return sums

    def _sum(self, context: Any, tensors: Sequence[Gradient]) -> list[Gradient]:
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
