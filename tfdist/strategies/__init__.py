"""Factories of genuine `tf.distribute` strategies.

A factory reads the cluster, checks that it can hold the strategy, builds it and puts it under `keras_compat`'s care.
May import the pure packages, `reporting`, `keras_compat`, TensorFlow and Keras.
"""

from tfdist.strategies.auto import auto_strategy
from tfdist.strategies.mirrored import mirrored_strategy
from tfdist.strategies.multi_worker_mirrored import multi_worker_mirrored_strategy
from tfdist.strategies.parameter_server import parameter_server_strategy

__all__ = [
    "auto_strategy",
    "mirrored_strategy",
    "multi_worker_mirrored_strategy",
    "parameter_server_strategy",
]
