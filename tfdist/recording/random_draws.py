"""Makes Keras's random layers draw constants, so that a model with dropout can be compared at all.

Replicas draw independent numbers on purpose, which no single device would. In the recorded runs, Keras's dropout
keeps everything, and its distributions return one fixed number each, alike in every row. Seeds are still drawn, because
whether replicas share them is compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfdist.keras_compat.private_names import backend_random, draw_seed, keras_backend

__all__ = ["constant_draws"]


def _filled(shape: Any, value: Any, dtype: Any) -> tf.Tensor:
    dtype = tf.as_dtype(keras_backend.standardize_dtype(dtype or keras_backend.floatx()))
    return tf.zeros(shape, dtype) + tf.cast(value, dtype)


def _normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> tf.Tensor:
    draw_seed(seed)
    return _filled(shape, mean + 0.5 * stddev, dtype)


def _uniform(shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Any = None) -> tf.Tensor:
    draw_seed(seed)
    return _filled(shape, minval + 0.3 * (maxval - minval), dtype)


def _randint(shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None) -> tf.Tensor:
    draw_seed(seed)
    dtype = tf.as_dtype(keras_backend.standardize_dtype(dtype))
    return tf.zeros(shape, dtype) + (tf.cast(minval, dtype) + tf.cast(maxval, dtype)) // 2


def _shuffle(x: Any, axis: int = 0, seed: Any = None) -> Any:
    del axis
    draw_seed(seed)
    return x


def _dropout(inputs: Any, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
    del rate, noise_shape
    draw_seed(seed)
    return inputs


@contextlib.contextmanager
def constant_draws() -> Iterator[None]:
    """While a recorded `fit` runs."""
    replacements = {
        "normal": _normal,
        "truncated_normal": _normal,
        "uniform": _uniform,
        "randint": _randint,
        "shuffle": _shuffle,
        "dropout": _dropout,
    }
    originals = {name: getattr(backend_random, name) for name in replacements}
    for name, replacement in replacements.items():
        setattr(backend_random, name, replacement)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(backend_random, name, original)
