"""`MirroredStrategy`: several devices of one process."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from tfdist.environment import cluster_config
from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.private_names import use_fresh_collective_keys
from tfdist.strategies.managing import refuse_cluster, take_care_of

__all__ = ["mirrored_strategy"]


def mirrored_strategy(
    devices: Sequence[str] | None = None, *, cross_device_ops: tf.distribute.CrossDeviceOps | None = None
) -> tf.distribute.MirroredStrategy:
    """Makes a `tf.distribute.MirroredStrategy` under which Keras 3 trains exactly.

    Not collective: it belongs to this process alone. The batches that `fit` gets are global ones, and shared out to the
    devices by rows.

    Args:
        devices: Devices to train on, such as `["GPU:0", "GPU:1"]`. All GPUs by default; without GPUs, all logical CPU
            devices (more than one only if `tf.config.set_logical_device_configuration` made them).
        cross_device_ops: How the replicas exchange gradients. TensorFlow's choice by default (NCCL on GPUs).

    Returns:
        The strategy. Its number of replicas is the number of devices.

    Raises:
        ArgumentError: In a process of a cluster of several workers, which would each train a model of its own; or a
            device does not exist.
        ClusterConfigError: TF_CONFIG breaks a rule.
    """
    cluster = cluster_config()
    if cluster.num_workers > 1 or cluster.has_parameter_servers:
        raise refuse_cluster(
            "MirroredStrategy",
            cluster,
            expected="one process: each of these would train a model of its own",
            fix="Use tfdist.auto_strategy(), or tfdist.multi_worker_mirrored_strategy().",
        )
    if devices is None and not tf.config.list_physical_devices("GPU"):
        devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    _refuse_missing(devices)
    use_fresh_collective_keys(tf.distribute.MirroredStrategy)
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=cross_device_ops)
    logging.info("MirroredStrategy on %d devices: %s", strategy.num_replicas_in_sync, strategy.extended.worker_devices)
    return take_care_of(strategy, cluster)


def _refuse_missing(devices: Sequence[str] | None) -> None:
    """Raises `ArgumentError` when a device does not exist.

    TensorFlow makes the strategy all the same, places the work of such a device on another one, and then waits for ever
    for its part of the first collective (seen with TensorFlow 2.21).
    """
    there = {device.name.rpartition("/device:")[2] for device in tf.config.list_logical_devices()}
    missing = [device for device in devices or () if _short_name(device) not in there]
    if missing:
        raise ArgumentError(
            describe_problem(
                "A device of the strategy does not exist",
                received=f"devices={list(devices or ())} (from the call); not there: {', '.join(missing)}",
                expected=f"devices among {', '.join(sorted(there))}",
                fix="Name devices that exist; tf.config.set_logical_device_configuration makes several of one.",
            )
        )


def _short_name(device: str) -> str:
    spec = tf.DeviceSpec.from_string(device if "/" in device else f"/device:{device}")
    return f"{spec.device_type}:{spec.device_index or 0}"
