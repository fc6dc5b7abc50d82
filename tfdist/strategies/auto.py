"""The strategy that fits the cluster and the devices."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from absl import logging

from tfdist.cluster.job_environment import parse_elastic_environment
from tfdist.cluster.resolution import ExplicitCluster
from tfdist.environment import cluster_config
from tfdist.strategies.mirrored import mirrored_strategy
from tfdist.strategies.multi_worker_mirrored import multi_worker_mirrored_strategy
from tfdist.strategies.parameter_server import parameter_server_strategy

__all__ = ["auto_strategy"]


def auto_strategy(cluster: ExplicitCluster = None, **options: Any) -> tf.distribute.Strategy:
    """Picks a strategy and logs the choice with its reason.

    - A cluster with parameter servers: `ParameterServerStrategy`.
    - A cluster of several workers: `MultiWorkerMirroredStrategy`.
    - One process, or an evaluator, with several GPUs or several logical CPU devices: `MirroredStrategy`.
    - One process, or an evaluator, with one device: TensorFlow's default strategy.

    Collective where the strategy that it picks is.

    Args:
        cluster: The cluster and this process's task; by default, as `tfdist.cluster_config` finds it.
        **options: Handed to the factory that is chosen.

    Returns:
        The strategy.

    Raises:
        ClusterConfigError: The cluster description breaks a rule.
        TfdistError: As the chosen factory.
    """
    config = cluster_config(cluster)
    elastic = parse_elastic_environment(os.environ)
    if elastic is not None:
        _log("MultiWorkerMirroredStrategy", f"the job is elastic, of {elastic.fewest} to {elastic.most} workers")
        return multi_worker_mirrored_strategy(cluster, **options)
    if config.task_type == "evaluator":
        return _on_this_process(f"this process is the evaluator (cluster from {config.source})", options)
    if config.has_parameter_servers:
        _log("ParameterServerStrategy", f"the cluster from {config.source} has parameter servers")
        return parameter_server_strategy(cluster, **options)
    if config.num_workers > 1:
        _log("MultiWorkerMirroredStrategy", f"the cluster from {config.source} has {config.num_workers} workers")
        return multi_worker_mirrored_strategy(cluster, **options)
    return _on_this_process("no cluster of several workers is described", options)


def _on_this_process(reason: str, options: dict[str, Any]) -> tf.distribute.Strategy:
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    kind = f"{len(devices)} {devices[0].device_type} device{'s' if len(devices) > 1 else ''}"
    if len(devices) > 1 or options:
        _log("MirroredStrategy", f"{reason}, and it has {kind}")
        return mirrored_strategy(**options)
    _log("TensorFlow's default strategy", f"{reason}, and it has {kind}")
    return tf.distribute.get_strategy()


def _log(choice: str, reason: str) -> None:
    logging.info("auto_strategy chose %s: %s.", choice, reason)
