"""`fit` of tf_keras (Keras 2) under TensorFlow's own strategy."""

from __future__ import annotations

from typing import Any

from benchmarks.participants.fit import time_fit
from benchmarks.participants.logical_devices import make_logical_devices
from benchmarks.place import Place


def measure(place: Place, model: str, epochs: int, devices: int = 1) -> dict[str, Any]:
    import tensorflow as tf
    import tf_keras

    if devices > 1:
        strategy = tf.distribute.MirroredStrategy(make_logical_devices(devices))
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == place.workers * devices
    return time_fit(tf_keras, strategy, model, epochs)
