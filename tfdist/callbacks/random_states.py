"""The states of the random number generators of this process that a training may read.

Those of layers are variables of the model. Not here, because TensorFlow does not let them out: the states of stateful
operations such as `tf.random.uniform` in a compiled step or in a tf.data function.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tfdist.keras_compat.private_names import (
    eager_random,
    global_generator,
    keras_global_seeds,
)

__all__ = ["capture_random_states", "restore_random_states"]


def capture_random_states() -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the states as tensors, by name, and as JSON values."""
    tensors: dict[str, Any] = {}
    record: dict[str, Any] = {"python": _python_state(random, tensors, "python")}
    kind, words, position, has_gauss, gauss = np.random.get_state(legacy=True)
    tensors["numpy"] = np.array(words)
    record["numpy"] = [kind, position, has_gauss, gauss]
    if eager_random() is not None:
        record["tensorflow"] = _python_state(eager_random(), tensors, "tensorflow")
    generator, seeds = global_generator(), keras_global_seeds()
    if generator is not None:
        tensors["generator"] = generator.state.read_value().numpy()
    if seeds is not None:
        tensors["keras"] = seeds.state.numpy()
    return tensors, record


def restore_random_states(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    """Puts back what `capture_random_states` returned."""
    _set_python_state(random, tensors["python"], record["python"])
    kind, position, has_gauss, gauss = record["numpy"]
    np.random.set_state((kind, np.array(tensors["numpy"]), position, has_gauss, gauss))
    if "tensorflow" in record and eager_random() is not None:
        _set_python_state(eager_random(), tensors["tensorflow"], record["tensorflow"])
    generator, seeds = global_generator(), keras_global_seeds()
    if "generator" in tensors and generator is not None:
        generator.state.assign(tensors["generator"])
    if "keras" in tensors and seeds is not None:
        seeds.state.assign(tensors["keras"])


def _python_state(generator: Any, tensors: dict[str, Any], name: str) -> list[Any]:
    version, words, gauss = generator.getstate()
    tensors[name] = np.array(words, np.int64)
    return [version, gauss]


def _set_python_state(generator: Any, words: Any, record: list[Any]) -> None:
    version, gauss = record
    generator.setstate((version, tuple(int(word) for word in np.array(words)), gauss))
