"""Which rows of a global batch each worker gets, where that follows what each can do.

All workers take the new shares at the same step: they come with the table that travels with the gradients of a step
(`communication/step_timings.py`, filled in by the first worker) and hold from the next step on. In an elastic job a new
group begins with equal shares.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.balancing import COLUMNS
from tfdist.keras_compat.managed_strategies import elastic_group, worker_position

__all__ = ["BatchShares", "batch_shares", "use_batch_shares"]

_SHARE = COLUMNS.index("share")
_numbers = itertools.count()
_in_use: weakref.WeakKeyDictionary[tf.distribute.Strategy, BatchShares] = weakref.WeakKeyDictionary()


class BatchShares:
    """The shares of the workers of a strategy, read anew by every step.

    Attributes:
        values: The shares by rank; their sum is 1.
    """

    def __init__(self) -> None:
        self.values: list[float] = []
        # A plain resource: a tf.Variable that is made in a strategy's scope would be the strategy's.
        with tf.init_scope(), tf.device("CPU:0"):
            name = f"tfdist batch shares {next(_numbers)}"
            self._boundaries = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[None], shared_name=name)
        self._group: Any = None

    def follow_members(self, strategy: tf.distribute.Strategy) -> None:
        """Makes the shares equal, if they are those of other members. Called when a step is traced."""
        group = elastic_group(strategy)
        num_workers = worker_position(strategy)[1]
        if self.values and self._group == (num_workers, None if group is None else group.number):
            return
        self._group = (num_workers, None if group is None else group.number)
        self.make_equal(num_workers)

    def make_equal(self, num_workers: int) -> None:
        """Gives all workers as much."""
        self._set([1 / num_workers] * num_workers)

    def take(self, table: np.ndarray[Any, Any]) -> None:
        """Takes the shares that came with a step's table."""
        shares = table[:, _SHARE].astype(np.float64).tolist()
        if len(shares) == len(self.values) and sum(shares) > 0 and shares != self.values:
            self._set(shares)

    def bounds(self, num_rows: tf.Tensor, worker: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The rows of a worker, from the first to before the second, int64 scalars. A graph looks anew each time."""
        boundaries = tf.raw_ops.ReadVariableOp(resource=self._boundaries, dtype=tf.float64)
        boundaries = tf.ensure_shape(boundaries, [len(self.values) + 1])
        exact = tf.cast(num_rows, tf.float64) * boundaries
        rows = tf.cast(tf.math.floor(exact + 0.5), tf.int64)
        return rows[worker], rows[worker + 1]

    def _set(self, shares: list[float]) -> None:
        self.values = shares
        sums = np.concatenate([[0.0], np.cumsum(shares)])
        with tf.init_scope(), tf.device("CPU:0"):
            boundaries = tf.constant(sums / sums[-1], tf.float64)
            tf.raw_ops.AssignVariableOp(resource=self._boundaries, value=boundaries)


def use_batch_shares(strategy: tf.distribute.Strategy) -> BatchShares:
    """Lets the steps of a strategy ask for the shares from now on."""
    return _in_use.setdefault(strategy, BatchShares())


def batch_shares(strategy: tf.distribute.Strategy) -> BatchShares | None:
    """The shares of a strategy; None where they are equal, always."""
    return _in_use.get(strategy)
