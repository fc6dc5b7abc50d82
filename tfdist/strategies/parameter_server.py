"""`ParameterServerStrategy`: asynchronous workers, variables on parameter servers."""

from __future__ import annotations

import os

import tensorflow as tf
from absl import logging

from tfdist.cluster.job_environment import START_TIMEOUT_S, parse_start_timeout_s
from tfdist.cluster.resolution import ExplicitCluster
from tfdist.communication.peers import wait_for_peers
from tfdist.environment import cluster_config
from tfdist.errors import TimeLimitError, describe_problem
from tfdist.reporting import report_progress
from tfdist.strategies.managing import refuse_cluster, take_care_of
from tfdist.strategies.starting import cluster_resolver, starting

__all__ = ["parameter_server_strategy"]


def parameter_server_strategy(
    cluster: ExplicitCluster = None,
    *,
    variable_partitioner: tf.distribute.experimental.partitioners.Partitioner | None = None,
) -> tf.distribute.experimental.ParameterServerStrategy:
    """Makes a `tf.distribute.experimental.ParameterServerStrategy` under which Keras 3 trains.

    Called by the coordinator (task type `chief`) alone, before it runs any TensorFlow operation; the `worker` and `ps`
    tasks serve, which `tfdist.run` does. It waits until they listen. TensorFlow's gRPC is neither authenticated nor
    encrypted: use it on networks that you trust.

    Args:
        cluster: The cluster and this process's task; by default, as `tfdist.cluster_config` finds it.
        variable_partitioner: Splits large variables over the parameter servers, such as
            `tf.distribute.experimental.partitioners.MinSizePartitioner(max_shards=2)`. None by default.

    Returns:
        The strategy.

    Raises:
        ArgumentError: The cluster has no parameter servers, or this process is not its coordinator.
        ClusterConfigError: The cluster description breaks a rule.
        TimeLimitError: Not all tasks listened within the limit TFDIST_START_TIMEOUT_S (600 seconds if it is not set);
            names those that do not.
    """
    config = cluster_config(cluster)
    if not config.has_parameter_servers or "chief" not in config.cluster:
        raise refuse_cluster(
            "ParameterServerStrategy",
            config,
            expected="a cluster with a `chief` (the coordinator), `worker` and `ps` tasks",
            fix="Start it with `tfdist run --workers N --ps M`, or list them in TF_CONFIG.",
        )
    if config.task_type != "chief":
        raise refuse_cluster(
            "ParameterServerStrategy",
            config,
            expected="the coordinator (task type `chief`): this task can only serve",
            fix="Put the training into a function and call `tfdist.run(train)`, which serves on this task.",
        )
    limit_s = parse_start_timeout_s(os.environ)
    report_progress("connecting")
    with starting(config, "ParameterServerStrategy"):
        silent = wait_for_peers(config, limit_s)
        if silent:
            raise TimeLimitError(
                describe_problem(
                    "Not all tasks of the cluster are there",
                    received=f"no answer from {silent}",
                    expected=f"every worker and ps task to listen within {START_TIMEOUT_S}={limit_s:g} seconds",
                    fix="Look at the logs of the tasks named above; see that their addresses can be reached from here.",
                )
            )
        strategy = tf.distribute.experimental.ParameterServerStrategy(
            cluster_resolver(config), variable_partitioner=variable_partitioner
        )
    report_progress("connected")
    logging.info(
        "ParameterServerStrategy: %d workers, %d parameter servers (cluster from %s)",
        config.num_workers,
        len(config.cluster["ps"]),
        config.source,
    )
    return take_care_of(strategy, config)
