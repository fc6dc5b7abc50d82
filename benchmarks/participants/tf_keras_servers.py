"""`fit` of tf_keras under ParameterServerStrategy, as TensorFlow's tutorial has it: workers read their own data."""

from __future__ import annotations

from typing import Any

from benchmarks.keras_models import build_compiled
from benchmarks.participants.servers import serve, time_fit_of_servers, worker_data
from benchmarks.place import Place


def measure(place: Place, model: str, epochs: int) -> dict[str, Any]:
    import tensorflow as tf
    import tf_keras

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if place.task != "chief":
        serve(resolver)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        network = build_compiled(tf_keras, model)
    data = tf_keras.utils.experimental.DatasetCreator(worker_data(model))
    return time_fit_of_servers(tf_keras, network, data, model, epochs)
