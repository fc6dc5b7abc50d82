"""The other processes of the cluster, seen from this one: who listens at its address."""

from __future__ import annotations

import socket
import time

from tfdist.cluster import ClusterConfig
from tfdist.cluster.config import name_task

__all__ = ["missing_peers", "wait_for_peers"]

_ASK_EVERY_S = 0.2


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
