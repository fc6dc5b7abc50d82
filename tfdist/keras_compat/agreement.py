"""Small facts that the workers of a synchronous job tell each other between steps."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.communication.transport_exchange import TransportExchange
from tfdist.keras_compat.elastic_operations import perform
from tfdist.keras_compat.managed_strategies import elastic_group, exchange_of, num_local_replicas, worker_position
from tfdist.reporting.heartbeat import in_phase

__all__ = ["any_worker", "numbers_of_all_workers"]

_exchanges: weakref.WeakKeyDictionary[tf.distribute.Strategy, Any] = weakref.WeakKeyDictionary()


def numbers_of_all_workers(strategy: tf.distribute.Strategy, numbers: Sequence[int]) -> np.ndarray:
    """Tells all workers this worker's numbers and returns those of all.

    Collective: every worker must call it, with as many numbers. One small all-reduce; compiled once for each count.

    Returns:
        An int64 array of shape (workers, numbers).
    """
    group = elastic_group(strategy)
    if group is not None:
        with in_phase("exchange"):
            return perform(group, lambda: group.all_reduce_sum([_table(strategy, numbers)])[0])
    table = _table(strategy, numbers)
    if len(table) == 1:
        return table
    exchange = exchange_of(strategy)
    if isinstance(exchange, TransportExchange):
        return exchange.sum_array(table)
    if strategy not in _exchanges:
        _exchanges[strategy] = _make_exchange(strategy)
    return _exchanges[strategy](tf.constant(table)).numpy()


def _table(strategy: tf.distribute.Strategy, numbers: Sequence[int]) -> np.ndarray:
    worker, num_workers = worker_position(strategy)
    table = np.zeros((num_workers, len(numbers)), np.int64)
    table[worker] = numbers
    return table


def _make_exchange(strategy: tf.distribute.Strategy) -> Any:
    num_local = num_local_replicas(strategy)

    @tf.function
    @tf.autograph.experimental.do_not_convert
    def exchange(table: tf.Tensor) -> tf.Tensor:
        def on_replica(counts: tf.Tensor) -> tf.Tensor:
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, table * counts)

        first_only = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(int(context.replica_id_in_sync_group % num_local == 0), tf.int64)
        )
        return strategy.experimental_local_results(strategy.run(on_replica, args=(first_only,)))[0]

    return exchange


def any_worker(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Whether the flag is set on any worker. Collective."""
    return bool(numbers_of_all_workers(strategy, [int(flag)]).any())
