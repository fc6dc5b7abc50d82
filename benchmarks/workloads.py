"""The models that are trained, their data, and how long an epoch of a measurement is. Sizes only: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["LEARNING_RATE", "NUM_BATCHES", "WORKLOADS", "Workload", "fixed_data", "gathered_bytes", "gradient_bytes"]

LEARNING_RATE = 1e-3
#: Different batches in memory; an epoch goes over them again and again.
NUM_BATCHES = 8
VOCABULARY, SEQUENCE, WIDTH, HEADS, HIDDEN, BLOCKS = 1000, 32, 128, 4, 256, 2


@dataclass(frozen=True)
class Workload:
    """One model.

    Attributes:
        batch: Rows of a worker's batch.
        steps: Steps of an epoch, a multiple of `NUM_BATCHES`.
        epochs: Epochs that are timed, after one to warm up.
        parameters: Trainable weights, which every participant's model must have.
    """

    batch: int
    steps: int
    epochs: int
    parameters: int


WORKLOADS = {
    "small_dense": Workload(batch=64, steps=96, epochs=6, parameters=269_322),
    "wide_dense": Workload(batch=64, steps=16, epochs=5, parameters=5_824_522),
    "cnn": Workload(batch=64, steps=24, epochs=5, parameters=34_826),
    "transformer": Workload(batch=32, steps=16, epochs=5, parameters=394_250),
}


def gradient_bytes(model: str) -> int:
    """What the dense gradients take, in float32: all but an embedding's."""
    embedding = VOCABULARY * WIDTH if model == "transformer" else 0
    return 4 * (WORKLOADS[model].parameters - embedding)


def gathered_bytes(model: str) -> int:
    """What a worker's rows of an embedding's gradient take, with their indices of 4 bytes, which all workers gather."""
    num_rows = WORKLOADS[model].batch * SEQUENCE if model == "transformer" else 0
    return 4 * num_rows * (WIDTH + 1)


def fixed_data(model: str, global_batch: int) -> tuple[Any, Any]:
    """Arrays of `NUM_BATCHES` global batches: inputs (NHWC for images), and labels of 10 classes. Always the same."""
    draw = np.random.default_rng(0)
    rows = NUM_BATCHES * global_batch
    labels = draw.integers(0, 10, rows, dtype=np.int64)
    if model == "transformer":
        return draw.integers(0, VOCABULARY, (rows, SEQUENCE), dtype=np.int32), labels
    shape = (28, 28, 1) if model == "cnn" else (784,)
    return draw.random((rows, *shape), dtype=np.float32), labels
