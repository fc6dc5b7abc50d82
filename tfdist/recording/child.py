"""A child process of `tfdist.verify`: `python -m tfdist.recording`, told by environment variables what to run."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfdist.cluster.job_environment import VerifyEnvironment, parse_verify_environment
from tfdist.errors import ArgumentError, TfdistError, describe_problem
from tfdist.recording.by_value import unpack
from tfdist.recording.runs import run_on_one_device, run_on_replicas
from tfdist.strategies import mirrored_strategy, multi_worker_mirrored_strategy
from tfdist.verification.record import REPLICAS

__all__ = ["DATASET", "JOB", "Job", "main", "make_strategy"]

JOB, DATASET = "job.pickle", "dataset"


@dataclasses.dataclass(frozen=True)
class Job:
    """What `tfdist.verify` was given.

    Attributes:
        build_fn: Builds the model.
        function: Makes the dataset; None if the dataset itself was saved.
        has_context: Whether the function takes an input context.
        own_batches: Whether each worker trains on the whole dataset (`auto_shard_policy` OFF).
    """

    build_fn: Callable[[], Any]
    function: Callable[..., Any] | None
    has_context: bool
    own_batches: bool


def make_strategy(plan: VerifyEnvironment) -> tf.distribute.Strategy:
    """The strategy of the run on replicas. To be called before anything runs in TensorFlow."""
    if plan.local_replicas == 1:
        return multi_worker_mirrored_strategy()
    make_local_devices(plan.local_replicas)
    return mirrored_strategy()


def make_local_devices(count: int) -> None:
    """Divides this process's CPU into logical devices."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def _dataset_of(job: Job, directory: Path) -> Any:
    if job.function is not None:
        return job.function if job.has_context else _check_data(job.function())
    dataset = tf.data.Dataset.load(str(directory / DATASET))
    if job.own_batches:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = dataset.with_options(options)
    return dataset


def _check_data(data: Any) -> Any:
    if isinstance(data, (tuple, list, dict)) or hasattr(data, "__array__") or data is None:
        raise ArgumentError(
            describe_problem(
                "The function of the dataset returns no batches",
                received=f"a {type(data).__name__} (from the function)",
                expected="a tf.data.Dataset of global batches, a keras.utils.PyDataset or a generator of batches",
                fix="Return tf.data.Dataset.from_tensor_slices((x, y)).batch(global_batch_size).",
            )
        )
    return data


def main() -> None:
    """Makes the runs of this process. Of an error that names its fix, only the message is shown."""
    try:
        _make_runs()
    except TfdistError as error:
        sys.exit(f"tfdist: {error}")


def _make_runs() -> None:
    plan = parse_verify_environment(os.environ)
    assert plan is not None, "only tfdist.verify starts this"
    directory = Path(plan.directory)
    strategy = make_strategy(plan) if plan.run == REPLICAS else None

    def load() -> tuple[Callable[[], Any], Callable[[], Any]]:
        job: Job = unpack((directory / JOB).read_bytes())
        return job.build_fn, lambda: _dataset_of(job, directory)

    if strategy is not None:
        run_on_replicas(strategy, load, plan)
    if strategy is None or plan.local_replicas > 1:
        run_on_one_device(load, directory, plan.steps)
