"""The three runs of a model that a function builds, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfdist.cluster.job_environment import VerifyEnvironment
from tfdist.recording.recorded_fit import recorded_fit
from tfdist.verification.record import AGAIN, SINGLE

__all__ = ["run_on_one_device", "run_on_replicas"]

_SEED = 1


def run_on_replicas(
    strategy: tf.distribute.Strategy, build_fn: Callable[[], Any], dataset: Any, plan: VerifyEnvironment
) -> None:
    """Makes the run on replicas. Collective under a strategy of several workers."""
    _run(strategy, build_fn, dataset, plan, _SEED)


def run_on_one_device(build_fn: Callable[[], Any], dataset: Any, directory: Path, steps: int) -> None:
    """Makes the two runs on one device, on the rows of the run on replicas."""
    for run, seed in ((SINGLE, _SEED), (AGAIN, _SEED + 1)):
        _run(tf.distribute.get_strategy(), build_fn, dataset, VerifyEnvironment(run, str(directory), steps), seed)


def _run(
    strategy: tf.distribute.Strategy, build_fn: Callable[[], Any], dataset: Any, plan: VerifyEnvironment, seed: int
) -> None:
    keras.backend.clear_session()  # so that layers get the same names each time
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = build_fn()
    recorded_fit(keras.Model.fit, model, plan, x=dataset)
