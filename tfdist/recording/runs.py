"""The three runs of a model that a function builds, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tfdist.cluster.job_environment import VerifyEnvironment
from tfdist.errors import ArgumentError, describe_problem
from tfdist.recording.recorded_fit import recorded_fit
from tfdist.verification.record import AGAIN, SINGLE

__all__ = ["Load", "run_on_one_device", "run_on_replicas"]

#: Returns the function that builds the model and the one that makes the data. Called once for each run, in the scope of
#: its strategy, so that no run sees what another one left in the objects that the functions use.
Load: TypeAlias = Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]

_SEED = 1


def run_on_replicas(strategy: tf.distribute.Strategy, load: Load, plan: VerifyEnvironment) -> None:
    """Makes the run on replicas. Collective under a strategy of several workers."""
    _run(strategy, load, plan, _SEED)


def run_on_one_device(load: Load, directory: Path, steps: int) -> None:
    """Makes the two runs on one device, on the rows of the run on replicas."""
    for run, seed in ((SINGLE, _SEED), (AGAIN, _SEED + 1)):
        _run(tf.distribute.get_strategy(), load, VerifyEnvironment(run, str(directory), steps), seed)


def _run(strategy: tf.distribute.Strategy, load: Load, plan: VerifyEnvironment, seed: int) -> None:
    keras.backend.clear_session()  # so that layers get the same names each time
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        build_fn, make_data = load()
        model = build_fn()
    if not isinstance(model, keras.Model) or not model.compiled:
        raise ArgumentError(
            describe_problem(
                "build_fn returns no model that can be trained",
                received=f"{'a model that is not compiled' if isinstance(model, keras.Model) else repr(model)}",
                expected="a compiled keras.Model",
                fix="Call model.compile(...) in build_fn, and return the model.",
            )
        )
    recorded_fit(keras.Model.fit, model, plan, x=None if plan.run == AGAIN else make_data())
