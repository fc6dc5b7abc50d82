"""`MirroredStrategy`: several devices of one process."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from tfdist.environment import cluster_config
from tfdist.keras_compat.private_names import use_fresh_collective_keys
from tfdist.strategies.managing import refuse_cluster, take_care_of

__all__ = ["mirrored_strategy"]


def mirrored_strategy(
    devices: Sequence[str] | None = None, *, cross_device_ops: tf.distribute.CrossDeviceOps | None = None
) -> tf.distribute.MirroredStrategy:
    """Makes a `tf.distribute.MirroredStrategy` under which Keras 3 trains exactly.

    Args:
        devices: Devices to train on, such as `["GPU:0", "GPU:1"]`. All GPUs by default; without GPUs, all logical CPU
            devices (more than one only if `tf.config.set_logical_device_configuration` made them).
        cross_device_ops: How the replicas exchange gradients. By default TensorFlow's choice on GPUs (NCCL), and on
            CPU devices `tf.distribute.ReductionToOneDevice`: nothing there is gained by a ring of collectives between
            threads of one process, and such a ring has been seen to wait for ever (docs/design/exactness.md).

    Returns:
        The strategy. Its number of replicas is the number of devices.

    Raises:
        ArgumentError: In a process of a cluster of several workers, which would each train a model of its own.
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
    if cross_device_ops is None and devices is not None and all(_is_cpu(device) for device in devices):
        cross_device_ops = tf.distribute.ReductionToOneDevice()
    use_fresh_collective_keys(tf.distribute.MirroredStrategy)
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=cross_device_ops)
    logging.info("MirroredStrategy on %d devices: %s", strategy.num_replicas_in_sync, strategy.extended.worker_devices)
    return take_care_of(strategy, cluster)


def _is_cpu(device: str) -> bool:
    return tf.DeviceSpec.from_string(device if "/" in device else f"/device:{device}").device_type == "CPU"
