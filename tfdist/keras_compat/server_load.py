"""What the processes of the parameter servers use, asked by the coordinator."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import tensorflow as tf

from tfdist.keras_compat.managed_strategies import cluster_of

__all__ = ["ServerLoad", "ServerLoads"]


class ServerLoad(NamedTuple):
    """Of one parameter server.

    Attributes:
        cpu_s: Processor time since it began, in seconds.
        memory_bytes: Its resident memory.
    """

    cpu_s: float
    memory_bytes: float


class ServerLoads:
    """Lets each parameter server read its own entry in /proc (Linux), by an operation that TensorFlow places there.

    Args:
        strategy: A managed parameter-server strategy.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._num_servers = len(cluster_of(strategy).cluster["ps"])
        self._look = tf.function(self._look_everywhere)

    def look(self) -> list[ServerLoad]:
        """The loads now, by the index of the server; none where a server does not tell."""
        try:
            return [_parse(text.numpy().decode()) for text in self._look()]
        except (
            tf.errors.OpError,
            ValueError,
            IndexError,
        ):  # a system without /proc; a server that is lost ends training
            return []

    @tf.autograph.experimental.do_not_convert
    def _look_everywhere(self) -> list[tf.Tensor]:
        texts = []
        for index in range(self._num_servers):
            with tf.device(f"/job:ps/replica:0/task:{index}/device:CPU:0"):
                # Not tf.io.read_file, which reads as many bytes as the file is said to have: none, in /proc.
                lines = tf.data.TextLineDataset("/proc/self/stat")
                texts.append(lines.reduce(tf.constant(""), _last))
        return texts


def _last(_: Any, line: tf.Tensor) -> tf.Tensor:
    return line


def _parse(text: str) -> ServerLoad:
    """Reads /proc/PID/stat (proc(5)): after the name, which is in brackets, come the fields from the third one on."""
    fields = text.rpartition(")")[2].split()
    user, system, pages = int(fields[11]), int(fields[12]), int(fields[21])
    return ServerLoad((user + system) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))
