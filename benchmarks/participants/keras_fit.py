"""`fit` of Keras 3 as it is: without a strategy, or under TensorFlow's MirroredStrategy."""

from __future__ import annotations

from typing import Any

from benchmarks.participants.fit import time_fit
from benchmarks.participants.logical_devices import make_logical_devices
from benchmarks.place import Place


def measure(place: Place, model: str, epochs: int, devices: int = 1) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    assert place.workers == 1
    strategy = tf.distribute.get_strategy()
    if devices > 1:
        strategy = tf.distribute.MirroredStrategy(make_logical_devices(devices))
    return time_fit(keras, strategy, model, epochs)
