"""`tfdist.verify`: whether a model trains on several replicas as it does on one device."""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfdist.cluster.job_environment import VerifyEnvironment
from tfdist.errors import ArgumentError, describe_problem
from tfdist.launching.quiet_job import run_quietly
from tfdist.recording.by_value import pack
from tfdist.recording.child import DATASET, JOB, Job
from tfdist.verification import Comparison, Finding, compare_runs, describe_comparison
from tfdist.verification.comparison import DEFAULT_TOLERANCE
from tfdist.verification.record import REPLICAS, SINGLE, load_runs

__all__ = ["VerificationReport", "verify"]

_STRATEGIES = ("auto", "mirrored", "multi_worker")


class VerificationReport:
    """What a verification came to. Shows itself in words, in a terminal and in a notebook.

    `verify` makes it.

    Args:
        comparison: Of the two runs.

    Attributes:
        findings: Each difference from one device with its likely cause, the first one first. Empty for a model that
            trains as on one device.
        notes: What could only be compared roughly, and why.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.findings: tuple[Finding, ...] = comparison.findings
        self.notes: tuple[str, ...] = comparison.notes
        self._text = describe_comparison(comparison)

    @property
    def passed(self) -> bool:
        """Whether nothing differs."""
        return not self.findings

    @property
    def status(self) -> int:
        """The status with which a CI job should end: 0, or 1 when something differs."""
        return int(bool(self.findings))

    def __repr__(self) -> str:
        return self._text


def verify(
    build_fn: Callable[[], Any],
    dataset: Any,
    steps: int = 5,
    *,
    replicas: int = 2,
    strategy: str = "auto",
    tolerance: float = DEFAULT_TOLERANCE,
    time_limit_s: float = 600.0,
) -> VerificationReport:
    """Trains a model on one device and on several replicas, from the same weights on the same rows, and compares.

    Losses, metrics, the gradients that the optimizer sees, weights and other variables are compared after each step,
    and the rows and random seeds of the replicas with each other. The report names what differs first and the likely
    cause.

    The runs happen in child processes, on CPUs, so it does not matter what TensorFlow has done in this one, nor whether
    this is a script or a notebook; `build_fn` and a dataset function are sent there by value where the children cannot
    import them. Keras's random layers draw constants meanwhile (dropout keeps everything), because replicas draw
    independent numbers on purpose; only whether they share seeds is looked at. Of `fit`'s arguments there is only the
    dataset. It does not verify parameter servers, whose training is asynchronous, GPUs, or custom loops without `fit`.

    Not collective: one process calls it, without a launcher. It takes as long as starting Python and TensorFlow once or
    twice, and the steps.

    Example:
        ::

            report = tfdist.verify(build_model, dataset)
            print(report)
            sys.exit(report.status)  # in CI

    Args:
        build_fn: Returns a new compiled model. Called without arguments in the scope of each run's strategy. What it
            uses of the script or notebook, such as a part of a model, is sent anew to each run, and made in that scope.
        dataset: A `tf.data.Dataset` of global batches; or a function that returns one, a `keras.utils.PyDataset` or a
            generator of batches; or a function of a `tf.distribute.InputContext`, as of
            `strategy.distribute_datasets_from_function`, which is what shards of several workers can be looked at with.
        steps: How many steps to compare; fewer if the dataset ends.
        replicas: How many replicas.
        strategy: `"mirrored"`: the replicas are logical devices of one process. `"multi_worker"`: a process each.
            `"auto"`: multi-worker for a function of an input context, else mirrored.
        tolerance: Relative difference that counts as rounding. What two runs on one device differ by, with the rows in
            another order, counts as rounding, too.
        time_limit_s: How long each of the one or two jobs may take, in seconds.

    Returns:
        The report.

    Raises:
        ArgumentError: An argument cannot be used, the function cannot be sent, or the model differs at each call.
        LaunchError: A run failed, as when the model cannot be built; the message has the end of its output.
        TimeLimitError: A job did not end in time.
    """
    _check(build_fn, dataset, steps, replicas, strategy)
    has_context = not isinstance(dataset, tf.data.Dataset) and _num_parameters(dataset) > 0
    if strategy == "auto":
        strategy = "multi_worker" if has_context else "mirrored"
    mirrored = strategy == "mirrored"
    with tempfile.TemporaryDirectory(prefix="tfdist-verify-") as name:
        directory = Path(name)
        _send(build_fn, dataset, has_context, steps, directory)
        runs = [(REPLICAS, 1 if mirrored else replicas)] if mirrored else [(REPLICAS, replicas), (SINGLE, 1)]
        for run, workers in runs:
            plan = VerifyEnvironment(run, name, steps, replicas if mirrored else 1)
            run_quietly([sys.executable, "-m", "tfdist.recording"], workers, _environment(plan), time_limit_s)
        return VerificationReport(compare_runs(*load_runs(directory), tolerance=tolerance))


def _check(build_fn: Any, dataset: Any, steps: Any, replicas: Any, strategy: Any) -> None:
    problem = None
    if not callable(build_fn) or _num_parameters(build_fn):
        problem = ("build_fn", build_fn, "a function without arguments that returns a compiled model")
    elif not isinstance(dataset, tf.data.Dataset) and (not callable(dataset) or _num_parameters(dataset) > 1):
        expected = "a tf.data.Dataset of global batches, or a function that returns one, a PyDataset or a generator"
        problem = ("dataset", dataset, expected)
    elif not isinstance(steps, int) or steps < 1:
        problem = ("steps", steps, "a whole number, at least 1")
    elif not isinstance(replicas, int) or replicas < 2:
        problem = ("replicas", replicas, "a whole number, at least 2")
    elif strategy not in _STRATEGIES:
        problem = ("strategy", strategy, f"one of {', '.join(map(repr, _STRATEGIES))}")
    if problem:
        argument, value, expected = problem
        raise ArgumentError(
            describe_problem(
                f"verify cannot use this {argument}",
                received=f"{argument}={value!r} (from the call)",
                expected=expected,
                fix="See help(tfdist.verify).",
            )
        )


def _num_parameters(function: Any) -> int:
    """Arguments that a function must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return sum(p.default is p.empty and p.kind not in variadic for p in parameters)


def _send(build_fn: Any, dataset: Any, has_context: bool, steps: int, directory: Path) -> None:
    function, own_batches = dataset, False
    if isinstance(dataset, tf.data.Dataset):
        function = None
        policy = dataset.options().experimental_distribute.auto_shard_policy
        own_batches = policy == tf.data.experimental.AutoShardPolicy.OFF
        dataset.take(steps).save(str(directory / DATASET))
    (directory / JOB).write_bytes(pack(Job(build_fn, function, has_context, own_batches)))


def _environment(plan: VerifyEnvironment) -> dict[str, str]:
    env = {**os.environ, **plan.to_env(), "CUDA_VISIBLE_DEVICES": "-1", "KERAS_BACKEND": "tensorflow"}
    env.pop("TF_CONFIG", None)
    env["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return env
