"""The table of probes, and what scenarios share."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Probe:
    """How an override is probed.

    Attributes:
        label: The override's label.
        run: The scenario.
        on: `mirrored` (two devices), `multi` (two workers) or `ps` (two workers, two parameter servers).
        fails_with: Pattern of `ErrorType: message` without the override.
        stock: Whether all overrides are taken away; otherwise this one alone, where stock Keras fails before.
        passes_on: Versions of Keras (`major.minor`) on which the scenario passes without the override.
    """

    label: str
    run: Callable[[Any], None]
    on: str
    fails_with: str
    stock: bool
    passes_on: tuple[str, ...] = ()


PROBES: dict[str, Probe] = {}


def probe(label, *, on, fails_with, stock=True, passes_on=()):
    """Registers a scenario."""

    def add(run):
        assert label not in PROBES, label
        PROBES[label] = Probe(label, run, on, fails_with, stock, passes_on)
        return run

    return add


def rows(count=8, features=4):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, features)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def model_of(strategy, *layers, optimizer=None, loss="mse", features=4, metrics=None, **compile_arguments):
    with strategy.scope():
        made = [make() for make in layers] or [keras.layers.Dense(1, kernel_initializer="ones")]
        model = keras.Sequential([keras.layers.Input((features,)), *made])
        model.compile(
            optimizer() if optimizer else keras.optimizers.SGD(0.1), loss, metrics=metrics, **compile_arguments
        )
    return model


def toy_fit(strategy, optimizer, batch_size=4, y=(10.0, 0.0, 0.0, 0.0), loss="mse"):
    """y = w x from w = 1; returns w after one epoch, and the loss."""
    model = model_of(
        strategy,
        lambda: keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
        optimizer=optimizer,
        features=1,
        loss=loss,
    )
    x = np.arange(1, len(y) + 1, dtype="float32")[:, None]
    data = tf.data.Dataset.from_tensor_slices((x, np.array(y, "float32")[:, None])).batch(batch_size)
    history = model.fit(data, verbose=0)
    return float(model.get_weights()[0][0, 0]), history.history["loss"][0]


def close(got, right):
    np.testing.assert_allclose(got, right, rtol=1e-5)


def is_chief(strategy):
    return strategy.cluster_resolver.task_id == 0


def directory():
    """Empty at the start of a scenario, and common to all tasks."""
    return Path(os.environ["PROBE_DIRECTORY"])


def leave_note(text):
    (directory() / f"{text}.note").touch()


def wait_for_note(text, limit_s=60.0):
    """Returns whether another task has left the note in time."""
    deadline = time.monotonic() + limit_s
    while not (directory() / f"{text}.note").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
