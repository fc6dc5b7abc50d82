"""Which strategies tfdist acts under: those that its factories made, and no others."""

from __future__ import annotations

import weakref

import tensorflow as tf

__all__ = ["is_managed", "is_parameter_server", "is_synchronous", "manage", "num_local_replicas", "worker_position"]

_managed: weakref.WeakSet[tf.distribute.Strategy] = weakref.WeakSet()


def manage(strategy: tf.distribute.Strategy) -> None:
    """Puts a strategy under tfdist's care. Called by the factories."""
    _managed.add(strategy)


def is_managed(strategy: object) -> bool:
    """Whether a tfdist factory made `strategy`."""
    return isinstance(strategy, tf.distribute.Strategy) and strategy in _managed


def is_parameter_server(strategy: object) -> bool:
    """Whether `strategy` is a managed strategy whose workers train asynchronously on parameter servers."""
    return is_managed(strategy) and isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy)


def is_synchronous(strategy: object) -> bool:
    """Whether `strategy` is a managed strategy whose replicas train in step."""
    return is_managed(strategy) and not is_parameter_server(strategy)


def num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Replicas that run in this process."""
    if is_parameter_server(strategy):
        return strategy.num_replicas_in_sync
    return len(strategy.extended.worker_devices)


def worker_position(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns (index of this worker, number of workers) among the workers that train in step."""
    num_workers = strategy.num_replicas_in_sync // num_local_replicas(strategy)
    if num_workers == 1 or is_parameter_server(strategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    before = (
        resolver.cluster_spec().num_tasks("chief")
        if resolver.task_type == "worker" and ("chief" in resolver.cluster_spec().jobs)
        else 0
    )
    return before + resolver.task_id, num_workers
