"""`MultiWorkerMirroredStrategy`: the devices of several workers, in step."""

from __future__ import annotations

import os

import tensorflow as tf
from absl import logging

from tfdist.cluster import ClusterConfig
from tfdist.cluster.job_environment import START_TIMEOUT_S, parse_elastic_environment, parse_start_timeout_s
from tfdist.cluster.resolution import ExplicitCluster
from tfdist.communication.peers import missing_peers, wait_for_peers
from tfdist.environment import cluster_config
from tfdist.errors import ArgumentError, TimeLimitError, describe_problem
from tfdist.keras_compat import job_seed
from tfdist.keras_compat.private_names import configure_coordination_service, use_fresh_collective_keys
from tfdist.reporting import report_progress
from tfdist.strategies.connecting import connect
from tfdist.strategies.elastic import elastic_strategy
from tfdist.strategies.managing import refuse_cluster, take_care_of
from tfdist.strategies.starting import cluster_resolver, starting

__all__ = ["multi_worker_mirrored_strategy"]

_IMPLEMENTATIONS = ("auto", "ring", "nccl")


def multi_worker_mirrored_strategy(
    cluster: ExplicitCluster = None, *, transport: str = "auto", communication: str = "auto"
) -> tf.distribute.MultiWorkerMirroredStrategy:
    """Makes a `tf.distribute.MultiWorkerMirroredStrategy` under which Keras 3 trains exactly.

    Collective: every worker of the cluster must call it, before it runs any TensorFlow operation. It waits until all
    have. Each worker trains on all of its GPUs, else on its CPU. If no seed has been set, the workers agree on a random
    one (see `keras_compat/job_seed.py`). TensorFlow's gRPC is neither authenticated nor encrypted: use it on networks
    that you trust.

    Args:
        cluster: The cluster and this process's task; by default, as `tfdist.cluster_config` finds it (without any, one
            worker).
        transport: How workers exchange gradients: `"collective"` (TensorFlow's own: NCCL on GPUs, gRPC on CPUs),
            `"tcp"` (shared memory within a host and sockets between hosts, for workers of one CPU each), `"mpi"` (for
            jobs that mpirun starts, with mpi4py installed) or `"auto"`: what TFDIST_TRANSPORT says, else the faster of
            the first two. The choice is logged with its reason. See docs/design/transports.md.
        communication: TensorFlow's implementation of `"collective"`: `"nccl"`, `"ring"` (over gRPC) or `"auto"`. One
            that is named makes `transport="auto"` choose `"collective"`.

    Returns:
        The strategy.

    Raises:
        ArgumentError: The cluster has parameter servers, this process is not one of its workers, TensorFlow has
            been used before, or the transport cannot be had.
        ClusterConfigError: The cluster description breaks a rule.
        TimeLimitError: Not all workers came within the limit TFDIST_START_TIMEOUT_S (600 seconds if it is not set);
            names those that are missing.
    """
    if communication not in _IMPLEMENTATIONS:
        raise ArgumentError(
            describe_problem(
                "There is no such communication implementation",
                received=f"communication={communication!r} (from the call)",
                expected=f"one of {', '.join(map(repr, _IMPLEMENTATIONS))}",
                fix='Leave it at "auto".',
            )
        )
    config = cluster_config(cluster)
    elastic = parse_elastic_environment(os.environ)
    if elastic is not None:
        return elastic_strategy(elastic, config)
    if config.has_parameter_servers or config.worker_index is None:
        raise refuse_cluster(
            "MultiWorkerMirroredStrategy",
            config,
            expected="a cluster of workers without parameter servers, and a process that is one of the workers",
            fix="Use tfdist.auto_strategy(), or describe a cluster of workers only.",
        )
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=getattr(tf.distribute.experimental.CommunicationImplementation, communication.upper()),
    )
    with starting(config, f"MultiWorkerMirroredStrategy of {config.num_workers} workers"):
        strategy = _build(config, options)
        job_seed.agree(strategy)
        named = transport == "auto" and communication != "auto"
        exchange = connect(strategy, config, *(("collective", "communication") if named else (transport, "transport")))
    logging.info(
        "MultiWorkerMirroredStrategy: %s of %d workers, %d replicas (cluster from %s)",
        config.task_name,
        config.num_workers,
        strategy.num_replicas_in_sync,
        config.source,
    )
    return take_care_of(strategy, config, exchange)


def _build(
    config: ClusterConfig, options: tf.distribute.experimental.CommunicationOptions
) -> tf.distribute.MultiWorkerMirroredStrategy:
    limit_s = parse_start_timeout_s(os.environ)
    if config.num_workers > 1:
        jobs = {name: len(config.cluster[name]) for name in ("chief", "worker") if name in config.cluster}
        leader = "/job:chief/replica:0/task:0" if "chief" in jobs else "/job:worker/replica:0/task:0"
        if not configure_coordination_service(leader, jobs, limit_s):
            raise ArgumentError(
                describe_problem(
                    "TensorFlow was used before the strategy was made",
                    received="an initialized TensorFlow context (from an operation, variable or device listing)",
                    expected="multi_worker_mirrored_strategy() before anything runs in TensorFlow",
                    fix="Make the strategy first thing in train(), before tensors, datasets and models.",
                )
            )
    report_progress("connecting")
    if config.is_chief and config.num_workers > 1:
        # The leader of TensorFlow's coordination service itself waits without a limit; the others start their servers
        # without waiting for it.
        silent = wait_for_peers(config, limit_s)
        if silent:
            raise _not_together(config, f"no answer from {silent}", limit_s)
    use_fresh_collective_keys(tf.distribute.MultiWorkerMirroredStrategy)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            cluster_resolver=cluster_resolver(config), communication_options=options
        )
    except tf.errors.OpError as error:
        said = f"{missing_peers(config)}; TensorFlow says: {error.message.splitlines()[0]}"
        raise _not_together(config, said, limit_s) from error
    report_progress("connected")
    return strategy


def _not_together(config: ClusterConfig, received: str, limit_s: float) -> TimeLimitError:
    return TimeLimitError(
        describe_problem(
            "The workers of the job did not come together",
            received=received,
            expected=f"all {config.num_workers} workers within {START_TIMEOUT_S}={limit_s:g} seconds",
            fix="Look at the logs of the workers named above; see that their addresses can be reached from here.",
        )
    )
