"""Timings of the replicas of a process whose gradients TensorFlow sums: from within the graph of a step.

A replica's row is made when its gradients are there, and travels with them. On GPUs that is when TensorFlow has put the
work in line, which is before it is done: what is told of computing there is too little, and of the exchange too much.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.balancing import COLUMNS
from tfdist.communication.step_timings import StepTimings
from tfdist.communication.transports.interface import Array
from tfdist.reporting.heartbeat import in_phase, mark_time, note_batch_ready

__all__ = ["ReplicaTimings"]


class ReplicaTimings:
    """Tells of the replicas of this process, whose graph calls it.

    Args:
        timings: What is told to whom.
        num_replicas: In the job.
        num_local: In this process.
    """

    def __init__(self, timings: StepTimings, num_replicas: int, num_local: int) -> None:
        self._timings = timings
        self._num_replicas, self._num_local = num_replicas, num_local
        self._begun: dict[int, float] = {}
        self._exchanging: in_phase | None = None
        self._lock = threading.Lock()  # TensorFlow runs replicas in several threads

    def own_table(
        self, replica: tf.Tensor | int, own_batch: tf.Tensor, values: Sequence[tf.Tensor], dtype: tf.DType
    ) -> tf.Tensor:
        """The table with this replica's row, once `values` are there. In a graph, calls of several replicas overlap."""

        def begin(replica: Any, own_batch: Any) -> Array:
            return self._begin(int(replica), *map(float, own_batch)).astype(dtype.as_numpy_dtype)

        with tf.device("CPU:0"), tf.control_dependencies(values):
            table = tf.numpy_function(begin, [replica, own_batch], dtype, stateful=False)
        table.set_shape([self._num_replicas, len(COLUMNS)])
        return table

    def take(self, replica: tf.Tensor | int, table: tf.Tensor) -> None:
        """Shows the table of all replicas to the observers."""
        with tf.device("CPU:0"):
            tf.numpy_function(self._end, [replica, table], [])

    def _begin(self, replica: int, ready: float, rows: float) -> Array:
        with self._lock:
            local = replica % self._num_local
            mark_time()
            note_batch_ready(ready)
            dtype = np.dtype(np.float64)
            table = self._timings.own_table(replica, self._num_replicas, rows, dtype, local_index=local)
            now = time.monotonic()
            if local in self._begun:  # a step before this one has failed
                self._begun.clear()
            self._begun[local] = now
            if len(self._begun) == self._num_local:
                for each, begun_at in self._begun.items():
                    self._timings.note_early(each, now - begun_at)
                self._begun.clear()
                self._exchanging = in_phase("exchange")
                self._exchanging.__enter__()
            return table

    def _end(self, replica: int, table: Array) -> None:
        if replica % self._num_local == 0 and self._exchanging is not None:
            self._exchanging.__exit__()
            self._exchanging = None
            self._timings.take(table)
