"""What every factory does with the strategy that it made."""

from __future__ import annotations

from typing import TypeVar

import tensorflow as tf

from tfdist.cluster import ClusterConfig
from tfdist.communication.exchange import CollectiveExchange, Exchange
from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.installation import install
from tfdist.keras_compat.managed_strategies import manage

__all__ = ["refuse_cluster", "take_care_of"]

_Strategy = TypeVar("_Strategy", bound=tf.distribute.Strategy)


def take_care_of(strategy: _Strategy, cluster: ClusterConfig, exchange: Exchange | None = None) -> _Strategy:
    """Makes Keras's `fit` work under `strategy`. Not collective.

    Args:
        strategy: The strategy.
        cluster: The cluster for which it was made.
        exchange: What sums tensors over its replicas; TensorFlow's collectives by default.
    """
    _refuse_other_backends()
    install(is_chief=cluster.is_chief)
    manage(strategy, cluster, exchange or CollectiveExchange())
    return strategy


def _refuse_other_backends() -> None:
    import keras

    if keras.backend.backend() != "tensorflow":
        raise ArgumentError(
            describe_problem(
                "Keras does not run on TensorFlow",
                received=f"backend={keras.backend.backend()!r} (from KERAS_BACKEND or keras.json)",
                expected="'tensorflow': a tf.distribute strategy cannot train another backend",
                fix="Set KERAS_BACKEND=tensorflow before keras is imported.",
            )
        )


def refuse_cluster(strategy_name: str, cluster: ClusterConfig, expected: str, fix: str) -> ArgumentError:
    """Words the error of a strategy that was asked for on a cluster that cannot hold it."""
    tasks = ", ".join(f"{len(addresses)} {task_type}" for task_type, addresses in cluster.cluster.items())
    here = "no cluster" if cluster.is_local else f"a cluster of {tasks}; this process is {cluster.task_name}"
    return ArgumentError(
        describe_problem(
            f"This cluster cannot hold a {strategy_name}",
            received=f"{here} (from {cluster.source})",
            expected=expected,
            fix=fix,
        )
    )
