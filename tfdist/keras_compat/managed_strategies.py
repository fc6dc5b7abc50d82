"""Which strategies tfdist acts under: those that its factories made, and no others."""

from __future__ import annotations

import dataclasses
import weakref

import tensorflow as tf

from tfdist.cluster import ClusterConfig
from tfdist.communication.elastic import ElasticTransport
from tfdist.communication.exchange import Exchange
from tfdist.communication.transport_exchange import TransportExchange

__all__ = [
    "cluster_of",
    "elastic_group",
    "exchange_of",
    "is_chief",
    "is_managed",
    "is_parameter_server",
    "manage",
    "num_local_replicas",
    "num_replicas",
    "worker_position",
]


@dataclasses.dataclass(frozen=True)
class _Managed:
    cluster: ClusterConfig
    exchange: Exchange


_managed: weakref.WeakKeyDictionary[tf.distribute.Strategy, _Managed] = weakref.WeakKeyDictionary()


def manage(strategy: tf.distribute.Strategy, cluster: ClusterConfig, exchange: Exchange) -> None:
    """Puts a strategy that was made for `cluster` under tfdist's care. Called by the factories."""
    _managed[strategy] = _Managed(cluster, exchange)


def cluster_of(strategy: tf.distribute.Strategy) -> ClusterConfig:
    """The cluster for which a managed strategy was made."""
    return _managed[strategy].cluster


def exchange_of(strategy: tf.distribute.Strategy) -> Exchange:
    """What sums tensors over the replicas of a managed synchronous strategy."""
    return _managed[strategy].exchange


def elastic_group(strategy: object) -> ElasticTransport | None:
    """What connects the members of an elastic job, who may change; `None` where the workers stay the same."""
    exchange = _managed[strategy].exchange if is_managed(strategy) else None
    if isinstance(exchange, TransportExchange) and isinstance(exchange.transport, ElasticTransport):
        return exchange.transport
    return None


def is_managed(strategy: object) -> bool:
    """Whether a tfdist factory made `strategy`."""
    return isinstance(strategy, tf.distribute.Strategy) and strategy in _managed


def is_parameter_server(strategy: object) -> bool:
    """Whether `strategy` is a managed strategy whose workers train asynchronously on parameter servers."""
    return is_managed(strategy) and isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy)


def num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Replicas that run in this process."""
    if is_parameter_server(strategy):
        return strategy.num_replicas_in_sync
    return len(strategy.extended.worker_devices)


def num_replicas(strategy: tf.distribute.Strategy) -> int:
    """Replicas that train in step now, in all processes.

    In an elastic job, `strategy.num_replicas_in_sync` is the number for which the job was started.
    """
    group = elastic_group(strategy)
    return strategy.num_replicas_in_sync if group is None else group.num_members * num_local_replicas(strategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes what all have alike."""
    group = elastic_group(strategy)
    if group is not None:
        return group.rank == 0 and not group.is_newcomer
    return cluster_of(strategy).is_chief


def worker_position(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns (index of this worker, number of workers) among the workers that train in step."""
    group = elastic_group(strategy)
    if group is not None:
        return group.rank, group.num_members
    cluster = cluster_of(strategy)
    if is_parameter_server(strategy) or cluster.worker_index is None:
        return 0, 1
    return cluster.worker_index, cluster.num_workers
