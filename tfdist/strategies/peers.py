"""Meeting the other processes of the cluster: who is missing, and a limit on the wait."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from tfdist.cluster import ClusterConfig
from tfdist.cluster.config import name_task

__all__ = ["cluster_resolver", "missing_peers", "starting", "wait_for_peers"]

_ASK_EVERY_S = 0.2
_REMIND_EVERY_S = 30.0


def cluster_resolver(config: ClusterConfig) -> tf.distribute.cluster_resolver.ClusterResolver:
    """TensorFlow's form of a cluster description."""
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({name: list(addresses) for name, addresses in config.cluster.items()}),
        task_type=config.task_type or "",
        task_id=config.task_id,
        rpc_layer="grpc",
    )


def missing_peers(config: ClusterConfig) -> str:
    """Says which tasks do not listen at their addresses, in words. Tries each for at most a second."""
    silent = _silent_peers(config)
    return "no answer from " + ", ".join(silent) if silent else "every task's address answers"


def wait_for_peers(config: ClusterConfig, limit_s: float) -> str:
    """Waits until every other task listens at its address.

    Returns:
        The tasks that still do not after `limit_s` seconds, in words; empty when all do.
    """
    deadline = time.monotonic() + limit_s
    while (silent := _silent_peers(config)) and time.monotonic() < deadline:
        time.sleep(_ASK_EVERY_S)
    return ", ".join(silent)


def _silent_peers(config: ClusterConfig) -> list[str]:
    silent = []
    for task_type, addresses in config.cluster.items():
        for task_id, address in enumerate(addresses):
            if (task_type, task_id) == (config.task_type, config.task_id) or task_type == "evaluator":
                continue
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
            except OSError as error:
                silent.append(f"{name_task(task_type, task_id)} at {address} ({error.strerror or error})")
    return silent


@contextlib.contextmanager
def starting(config: ClusterConfig, what: str) -> Iterator[None]:
    """While the block waits for peers, says every half minute for whom."""
    done = threading.Event()

    def remind() -> None:
        while not done.wait(_REMIND_EVERY_S):
            logging.warning("%s waits for its peers (%s): %s", config.task_name, what, missing_peers(config))

    thread = threading.Thread(target=remind, daemon=True, name="tfdist-start-reminder")
    if config.num_workers > 1 or config.has_parameter_servers:
        thread.start()
    try:
        yield
    finally:
        done.set()
