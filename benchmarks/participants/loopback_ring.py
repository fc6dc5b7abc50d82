"""What loopback sockets allow: every member sends the next one what a ring all-reduce would send. Sums nothing."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.participants.all_reduce import time_sizes
from benchmarks.place import Place

_LIMIT_S = 60.0
_BUFFER_BYTES = 1 << 22


def measure(place: Place, sizes: list[int]) -> dict[str, Any]:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.settimeout(_LIMIT_S)
    ports = [int(port) for port in place.tell_all("port", str(listening.getsockname()[1]))]
    to_next = socket.socket()
    to_next.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    to_next.settimeout(_LIMIT_S)
    to_next.connect(("127.0.0.1", ports[(place.rank + 1) % place.workers]))
    from_previous = listening.accept()[0]
    for connection in (to_next, from_previous):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)

    def prepare(values: np.ndarray) -> Callable[[], None]:
        num_bytes = 2 * (place.workers - 1) * values.nbytes // place.workers
        outgoing, incoming = (memoryview(bytearray(num_bytes)) for _ in range(2))

        def exchange() -> None:
            sent = received = 0
            poll = select.poll()
            poll.register(from_previous, select.POLLIN)
            while sent < num_bytes or received < num_bytes:
                with contextlib.suppress(BlockingIOError):
                    while sent < num_bytes:
                        sent += to_next.send(outgoing[sent:])
                with contextlib.suppress(BlockingIOError):
                    while received < num_bytes:
                        count = from_previous.recv_into(incoming[received:])
                        if not count:
                            raise EOFError("the previous member has gone")
                        received += count
                if sent < num_bytes or received < num_bytes:
                    poll.register(to_next, select.POLLOUT if sent < num_bytes else 0)
                    poll.modify(from_previous, select.POLLIN if received < num_bytes else 0)
                    if not poll.poll(_LIMIT_S * 1000):
                        raise TimeoutError(f"a neighbour of worker {place.rank} has been silent for {_LIMIT_S:g} s")

        return exchange

    measured = time_sizes(place, sizes, prepare)
    place.tell_all("measured", "")
    return measured
