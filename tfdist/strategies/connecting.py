"""How the workers of `MultiWorkerMirroredStrategy` are connected for what they exchange in a step."""

from __future__ import annotations

import importlib.util
import itertools
import os
import secrets

import tensorflow as tf
from absl import logging

from tfdist.cluster import ClusterConfig
from tfdist.cluster.job_environment import (
    EXCHANGE_TIMEOUT_S,
    JOB_SECRET,
    NETWORK_TIMEOUT_S,
    SHARED_MEMORY,
    START_TIMEOUT_S,
    TRANSPORT,
    parse_exchange_timeout_s,
    parse_network_timeout_s,
    parse_start_timeout_s,
)
from tfdist.communication.exchange import CollectiveExchange, Exchange
from tfdist.communication.peers import missing_peers
from tfdist.communication.transport_exchange import TransportExchange
from tfdist.communication.transports import TimeLimit, Transport, form_group, listen
from tfdist.communication.transports.choice import choose_transport
from tfdist.communication.transports.mpi import form_mpi_group
from tfdist.errors import TimeLimitError, describe_problem
from tfdist.keras_compat.private_names import get_key_value, set_key_value

__all__ = ["connect"]

#: Of this process, as of the others, which all make the same strategies in the same order.
_groups = itertools.count()
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")


def connect(strategy: tf.distribute.Strategy, config: ClusterConfig, requested: str, where: str) -> Exchange:
    """Chooses and makes what sums tensors over the workers, and logs the reason. Collective.

    Args:
        strategy: A `MultiWorkerMirroredStrategy`, through whose coordination service the workers tell each other their
            ports.
        config: The cluster.
        requested: `auto`, `collective`, `tcp` or `mpi`. For `auto`, the variable TFDIST_TRANSPORT counts.
        where: The setting that `requested` is from.
    """
    if requested == "auto" and os.environ.get(TRANSPORT):
        requested, where = os.environ[TRANSPORT], TRANSPORT
    devices = strategy.extended.worker_devices
    name, reason = choose_transport(
        requested,
        has_gpus=any("GPU" in device for device in devices),
        num_workers=config.num_workers,
        num_replicas_per_worker=len(devices),
        is_mpi_job=any(variable in os.environ for variable in _MPI_VARIABLES),
        mpi_available=importlib.util.find_spec("mpi4py") is not None,
        where=where,
    )
    logging.info("%s exchanges over %s: %s", config.task_name, name, reason)
    if name == "collective":
        return CollectiveExchange()
    return TransportExchange(_form(config, name))


def _form(config: ClusterConfig, name: str) -> Transport:
    rank = config.worker_index
    assert rank is not None
    names = config.worker_names
    exchange_limit = TimeLimit(parse_exchange_timeout_s(os.environ), EXCHANGE_TIMEOUT_S)
    if name == "mpi":
        return form_mpi_group(rank, names, exchange_limit=exchange_limit)
    limit_s = parse_start_timeout_s(os.environ)
    group = f"tfdist/group/{next(_groups)}"
    host = config.worker_addresses[rank].rpartition(":")[0]  # IPv6 keeps its brackets
    listener = listen(host)
    set_key_value(f"{group}/{rank}", f"{host}:{listener.port}")
    if config.is_chief:
        set_key_value(f"{group}/secret", secrets.token_hex(32))
    told = [_told(config, f"{group}/{peer}", names[peer], limit_s) for peer in range(config.num_workers)]
    # Without a secret of the job's own, the chief's goes through TensorFlow's gRPC, which is open to who can reach it.
    secret = os.environ.get(JOB_SECRET) or _told(config, f"{group}/secret", names[0], limit_s)
    return form_group(
        listener,
        told,
        rank,
        secret=secret.encode(),
        names=names,
        group=group,
        forming_limit=TimeLimit(limit_s, START_TIMEOUT_S),
        exchange_limit=exchange_limit,
        network_limit=TimeLimit(parse_network_timeout_s(os.environ), NETWORK_TIMEOUT_S),
        shares_memory=os.environ.get(SHARED_MEMORY, "1") != "0",
    )


def _told(config: ClusterConfig, key: str, peer: str, limit_s: float) -> str:
    try:
        return get_key_value(key, limit_s)
    except tf.errors.DeadlineExceededError as error:
        raise TimeLimitError(
            describe_problem(
                f"{config.task_name} waits for {peer} to open a port for the exchange between workers",
                received=f"nothing from {peer}; {missing_peers(config)}",
                expected=f"its port within {START_TIMEOUT_S}={limit_s:g} seconds",
                fix=f"Look at the log of {peer}.",
            )
        ) from error
