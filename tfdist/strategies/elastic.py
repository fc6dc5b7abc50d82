"""`MultiWorkerMirroredStrategy` whose workers may come and go."""

from __future__ import annotations

import os
import secrets

import tensorflow as tf
from absl import logging

from tfdist.cluster import ClusterConfig
from tfdist.cluster.job_environment import (
    EXCHANGE_TIMEOUT_S,
    NETWORK_TIMEOUT_S,
    SHARED_MEMORY,
    START_TIMEOUT_S,
    ElasticEnvironment,
    parse_exchange_timeout_s,
    parse_job_environment,
    parse_network_timeout_s,
    parse_regroup_timeout_s,
    parse_start_timeout_s,
)
from tfdist.communication.elastic import ElasticTransport, enter_job
from tfdist.communication.transport_exchange import TransportExchange
from tfdist.communication.transports import TimeLimit
from tfdist.errors import ArgumentError, TimeLimitError, describe_problem
from tfdist.keras_compat import job_seed
from tfdist.reporting import report_progress
from tfdist.strategies.managing import take_care_of
from tfdist.strategies.starting import cluster_resolver

__all__ = ["ElasticMultiWorkerMirroredStrategy", "elastic_strategy"]

_SEED = "job seed"
_NO_SEED = "none"


class ElasticMultiWorkerMirroredStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """For TensorFlow each process of an elastic job trains alone: TensorFlow's clusters cannot lose or gain a task.

    What crosses processes is tfdist's own exchange.
    """

    def __init__(self, cluster: ClusterConfig, most: int) -> None:
        self._most = most
        super().__init__(cluster_resolver=cluster_resolver(cluster))

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas for which the job was started, however many there are now.

        What scripts make of it, a global batch or a learning rate, so stays the same for those who come later.
        """
        return self._most


def elastic_strategy(elastic: ElasticEnvironment, cluster: ClusterConfig) -> ElasticMultiWorkerMirroredStrategy:
    """Makes the strategy of a worker of an elastic job. Collective, but for newcomers.

    Args:
        elastic: What the launcher told this worker.
        cluster: The cluster of this process alone.

    Raises:
        ArgumentError: The worker has several devices, or the launcher told it a part only.
        PeerLostError: The rendezvous cannot be reached, or too few workers came.
        TimeLimitError: The other workers did not come.
    """
    if not cluster.is_local:
        raise ArgumentError(
            describe_problem(
                "An elastic job takes no description of a cluster: who takes part is found out while it runs",
                received=f"a cluster from {cluster.source}, and TFDIST_RENDEZVOUS={elastic.rendezvous}",
                expected="no `cluster` argument and no TF_CONFIG",
                fix="Leave it out, or start the job with a fixed number of workers: --workers N.",
            )
        )
    job = parse_job_environment(os.environ)
    if job is None:
        raise ArgumentError(
            describe_problem(
                "The launcher told this process a part only of what it has to know",
                received=f"TFDIST_RENDEZVOUS={elastic.rendezvous} without TFDIST_TASK or TFDIST_JOB_SECRET",
                expected="all variables that `tfdist run --workers MIN:MAX` sets",
                fix="Pass the environment of the task on as it is.",
            )
        )
    strategy = ElasticMultiWorkerMirroredStrategy(cluster, elastic.most)
    devices = strategy.extended.worker_devices
    if len(devices) > 1:
        raise ArgumentError(
            describe_problem(
                "A worker of an elastic job can have one device",
                received=f"{len(devices)} devices: {', '.join(devices)}",
                expected="one device in each process",
                fix="Start a worker for each device, and show it that one by CUDA_VISIBLE_DEVICES.",
            )
        )
    report_progress("connecting")
    group = enter_job(
        elastic.rendezvous,
        job.secret,
        _process_name(job.task_name, elastic),
        job=elastic.job,
        exchange_limit=TimeLimit(parse_exchange_timeout_s(os.environ), EXCHANGE_TIMEOUT_S),
        network_limit=TimeLimit(parse_network_timeout_s(os.environ), NETWORK_TIMEOUT_S),
        start_limit_s=parse_start_timeout_s(os.environ),
        regroup_limit_s=parse_regroup_timeout_s(os.environ),
        shares_memory=os.environ.get(SHARED_MEMORY, "1") != "0",
    )
    if not group.is_newcomer:
        group.start()
    report_progress("connected")
    take_care_of(strategy, cluster, TransportExchange(group))
    _agree_on_seed(strategy, group)
    if group.is_newcomer:
        logging.info("%s came after training had begun: fit takes it in.", job.task_name)
    else:
        logging.info("Elastic: %s is member %d of %s", job.task_name, group.rank, ", ".join(group.members))
    return strategy


def _process_name(task_name: str, elastic: ElasticEnvironment) -> str:
    """A name that no other process of the job ever has."""
    node = f" on {os.uname().nodename}" if elastic.job else ""
    return f"{task_name}{node} ({secrets.token_hex(4)})"


def _agree_on_seed(strategy: tf.distribute.Strategy, group: ElasticTransport) -> None:
    """As `job_seed.agree`; a newcomer gets the seed through the rendezvous."""
    if not group.is_newcomer:
        job_seed.agree(strategy)
        if group.rank == 0:
            seed = job_seed.agreed_seed()
            group.client.set(_SEED, _NO_SEED if seed is None else str(seed))
        return
    limit_s = parse_start_timeout_s(os.environ)
    seed_text = group.client.get(_SEED, limit_s)
    if seed_text is None:
        raise TimeLimitError(
            describe_problem(
                "The members of the job did not say which random seed they use",
                received="nothing from the rendezvous",
                expected=f"the seed within {START_TIMEOUT_S}={limit_s:g} seconds",
                fix="Look at the logs of the other workers.",
            )
        )
    if seed_text != _NO_SEED:
        job_seed.use(int(seed_text))
