"""Starting together: TensorFlow's form of the cluster, and a word to the user while peers are missing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from tfdist.cluster import ClusterConfig
from tfdist.communication.peers import missing_peers

__all__ = ["cluster_resolver", "starting"]

_REMIND_EVERY_S = 30.0


def cluster_resolver(config: ClusterConfig) -> tf.distribute.cluster_resolver.ClusterResolver:
    """TensorFlow's form of a cluster description."""
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({name: list(addresses) for name, addresses in config.cluster.items()}),
        task_type=config.task_type or "",
        task_id=config.task_id,
        rpc_layer="grpc",
        # Without this a worker of MultiWorkerMirroredStrategy would train on its CPU. Listing does not initialize them.
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
    )


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
