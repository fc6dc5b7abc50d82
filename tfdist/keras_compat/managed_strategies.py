"""Which strategies tfdist acts under: those that its factories made, and no others."""

from __future__ import annotations

import dataclasses
import weakref

import tensorflow as tf

from tfdist.cluster import ClusterConfig
from tfdist.communication.exchange import Exchange

__all__ = [
    "cluster_of",
    "exchange_of",
    "is_managed",
    "is_parameter_server",
    "manage",
    "num_local_replicas",
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


def worker_position(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns (index of this worker, number of workers) among the workers that train in step."""
    cluster = cluster_of(strategy)
    if is_parameter_server(strategy) or cluster.worker_index is None:
        return 0, 1
    return cluster.worker_index, cluster.num_workers
