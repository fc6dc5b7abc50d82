"""One recorded `fit`: the run on replicas, which keeps its rows, or a run on one device, which trains on those rows."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfdist.cluster.job_environment import VerifyEnvironment
from tfdist.errors import ArgumentError, UnsupportedError, describe_problem
from tfdist.keras_compat.managed_strategies import is_managed, is_parameter_server, worker_position
from tfdist.keras_compat.private_names import model_strategy, tree
from tfdist.keras_compat.trainer import build_from_spec
from tfdist.recording.batches import keeping_batches, note_own_rows, replay_batches, rows_directory
from tfdist.recording.random_draws import constant_draws
from tfdist.recording.recorder import Recorder, model_facts
from tfdist.verification.record import AGAIN, INITIAL, REPLICAS, SINGLE, load_run

__all__ = ["recorded_fit"]


def recorded_fit(fit: Any, model: Any, plan: VerifyEnvironment, *args: Any, **kwargs: Any) -> None:
    """Trains a model for the steps of the plan, and leaves the record.

    On several workers, every worker must call it.

    Args:
        fit: The unbound `fit` method.
        model: The compiled model.
        plan: Which run this is.
        *args: What the user gave to `fit`.
        **kwargs: The same.

    Raises:
        ArgumentError: The run on replicas has one replica only.
        UnsupportedError: The model is trained by asynchronous parameter servers.
    """
    given = dict(inspect.signature(fit).bind(model, *args, **kwargs).arguments)
    given.pop("self", None)
    directory = Path(plan.directory)
    strategy = model_strategy(model)
    if is_managed(strategy) and is_parameter_server(strategy):
        raise UnsupportedError(
            describe_problem(
                "Asynchronous training cannot be compared step by step",
                received="a ParameterServerStrategy",
                expected="a synchronous strategy",
                fix="Verify the model under MirroredStrategy or MultiWorkerMirroredStrategy.",
            )
        )
    recorder = Recorder(model)
    callbacks = [c for c in tree.flatten(given.get("callbacks") or []) if _changes_training(c)]
    settings: dict[str, Any] = {"epochs": 1, "verbose": 0}
    model.steps_per_execution = 1
    if plan.run == REPLICAS:
        worker = _check_replicas(model)
        settings |= _input_of(given) | {"steps_per_epoch": plan.steps, "shuffle": given.get("shuffle", True)}
        settings["callbacks"] = [*callbacks, recorder.callback(None)]
        with keeping_batches(recorder, plan.steps, rows_directory(directory, worker)):
            _train(fit, model, recorder, settings)
    else:
        worker = 0
        model.jit_compile = False  # XLA rounds in another order, and nothing can be taken out of its graphs
        replicas = load_run(directory, REPLICAS)
        initial = {**replicas.one(INITIAL, "weight"), **replicas.one(INITIAL, "state")}
        if plan.run == SINGLE and replicas.facts.workers > 1:
            note_own_rows(recorder, given.get("x"), plan.steps * replicas.facts.replicas)
        settings["x"] = replay_batches(directory, backwards=plan.run == AGAIN)
        settings["callbacks"] = [*callbacks, recorder.callback(initial)]
        if not model.built:  # stock Keras builds in the first step, and the weights are set before
            build_from_spec(model, settings["x"].element_spec)
        _train(fit, model, recorder, settings)
    recorder.record.facts = model_facts(model)
    recorder.record.save(directory / f"{plan.run}-{worker}.npz")


def _check_replicas(model: Any) -> int:
    strategy = model_strategy(model)
    if strategy is None or not is_managed(strategy) or strategy.num_replicas_in_sync < 2:
        raise ArgumentError(
            describe_problem(
                "The model is trained on one replica, so there is nothing to compare",
                received="no strategy that a tfdist factory made"
                if not is_managed(strategy)
                else "a strategy of one replica",
                expected="a model built in the scope of a strategy of tfdist's with several replicas",
                fix="Make the strategy with tfdist.auto_strategy(), and build the model in `with strategy.scope():`.",
            )
        )
    return worker_position(strategy)[0]


def _input_of(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("x", "y", "batch_size", "sample_weight", "class_weight") if name in given}


def _changes_training(callback: Any) -> bool:
    return isinstance(callback, keras.callbacks.LearningRateScheduler)


def _train(fit: Any, model: Any, recorder: Recorder, settings: dict[str, Any]) -> None:
    with constant_draws(), recorder.watching(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as of a dataset that has fewer batches than the plan has steps
        fit(model, **settings)
