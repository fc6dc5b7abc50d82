"""TensorFlow's collectives, as MultiWorkerMirroredStrategy uses them: called in a `tf.function`, one for each sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.participants.all_reduce import time_sizes
from benchmarks.place import Place


def measure(place: Place, sizes: list[int]) -> dict[str, Any]:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == place.workers

    def on_replica(value: Any) -> Any:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)

    def prepare(values: np.ndarray) -> Callable[[], Any]:
        tensor = tf.constant(values)

        @tf.function
        def reduce() -> Any:
            return strategy.run(on_replica, args=(tensor,))

        return reduce

    return time_sizes(place, sizes, prepare)
