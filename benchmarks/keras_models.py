"""The models in Keras: Keras 3 and tf_keras have the same names for all that is used."""

from __future__ import annotations

from typing import Any

from benchmarks.workloads import (
    BLOCKS,
    HEADS,
    HIDDEN,
    LEARNING_RATE,
    NUM_BATCHES,
    SEQUENCE,
    VOCABULARY,
    WIDTH,
    WORKLOADS,
    fixed_data,
)

__all__ = ["build", "build_compiled", "check_size", "make_dataset", "make_optimizer"]


def build(keras: Any, model: str) -> Any:
    """Returns an uncompiled model that gives logits of 10 classes.

    Args:
        keras: The module keras or tf_keras.
        model: A key of `WORKLOADS`.
    """
    layers = keras.layers
    if model == "transformer":
        inputs = keras.Input((SEQUENCE,), dtype="int32")
        x = layers.Embedding(VOCABULARY, WIDTH)(inputs)
        for _ in range(BLOCKS):
            attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
            x = layers.LayerNormalization()(layers.Add()([x, attended]))
            hidden = layers.Dense(WIDTH)(layers.Dense(HIDDEN, activation="relu")(x))
            x = layers.LayerNormalization()(layers.Add()([x, hidden]))
        outputs = layers.Dense(10)(layers.GlobalAveragePooling1D()(x))
        built = keras.Model(inputs, outputs)
    elif model == "cnn":
        built = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(10),
            ]
        )
    else:
        width = {"small_dense": 256, "wide_dense": 2048}[model]
        dense = [layers.Dense(width, activation="relu"), layers.Dense(width, activation="relu"), layers.Dense(10)]
        built = keras.Sequential([keras.Input((784,)), *dense])
    check_size(model, built.count_params())
    return built


def check_size(model: str, parameters: int) -> None:
    """Raises `AssertionError` where a participant would train another model than the others."""
    expected = WORKLOADS[model].parameters
    assert parameters == expected, f"{model} has {parameters} weights here, {expected} elsewhere"


def make_optimizer(keras: Any) -> Any:
    return keras.optimizers.Adam(LEARNING_RATE)


def build_compiled(keras: Any, model: str) -> Any:
    """As a user of `fit` does: the loss is all that is measured."""
    built = build(keras, model)
    built.compile(make_optimizer(keras), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return built


def make_dataset(model: str, replicas: int, steps: int | None = None, rows: int | None = None) -> Any:
    """A dataset of global batches that are in memory: `steps` of them, or endless; `rows` (or the workload's) each."""
    import tensorflow as tf

    global_batch = (rows or WORKLOADS[model].batch) * replicas
    data = tf.data.Dataset.from_tensor_slices(fixed_data(model, global_batch))
    return data.batch(global_batch, drop_remainder=True).repeat(None if steps is None else steps // NUM_BATCHES)
