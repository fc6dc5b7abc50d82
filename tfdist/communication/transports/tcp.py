"""The transport on plain sockets, and on shared memory between the members on one host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from tfdist.communication.transports.buffers import Bucket, ResultPool, layout_of
from tfdist.communication.transports.host_exchange import HostExchange, shared_bytes
from tfdist.communication.transports.interface import Array, TransportClosedError
from tfdist.communication.transports.links import Links
from tfdist.communication.transports.socket_exchange import SocketExchange
from tfdist.communication.transports.summation import as_bucket, as_rows
from tfdist.errors import TfdistError

__all__ = ["TcpTransport"]

_CLOSE_LIMIT_S = 5.0
_Result = TypeVar("_Result")


class TcpTransport:
    """A member of a formed group; `form_group` makes it. See `Transport` for what it promises.

    Attributes:
        hosts: The ranks of all members, one list for each host on which members share memory; a member that shares none
            is a list of its own.
    """

    name = "tcp"

    def __init__(self, links: Links, hosts: list[list[int]], memory: Array | None, piece_bytes: int) -> None:
        self.rank = links.rank
        self.num_members = len(links.names)
        self.hosts = hosts
        self.crosses_network = len(hosts) > 1
        self._links = links
        self._sockets = SocketExchange(links, range(self.num_members))
        self._reducer: SocketExchange | HostExchange = self._sockets
        if any(len(host) > 1 for host in hosts):
            own_host = next(host for host in hosts if links.rank in host)
            if memory is None:
                memory = np.empty(shared_bytes(1, piece_bytes), np.uint8)
            self._reducer = HostExchange(links, own_host, [host[0] for host in hosts], memory, piece_bytes)
        self._pool = ResultPool()
        self._exchanging = threading.Lock()
        self._closing = threading.Lock()
        self._is_closed = False
        self._failure: TfdistError | None = None

    def all_reduce_sum(self, parts: Sequence[Array], *, checksum: int = 0) -> list[Array]:
        """See `Transport.all_reduce_sum`."""
        arrays = as_bucket(parts)
        if not arrays:
            return []
        bucket = Bucket(arrays, layout_of(arrays, checksum))

        def reduce() -> list[Array]:
            results = self._pool.arrays_like(bucket.layout)
            self._reducer.all_reduce(bucket, Bucket(results, bucket.layout))
            return results

        return self._exchange(reduce)

    def all_gather(self, rows: Array) -> list[Array]:
        """See `Transport.all_gather`."""
        checked = as_rows(rows)
        return self._exchange(lambda: self._sockets.all_gather(checked))

    def take_deliveries(self) -> tuple[float, float, int]:
        """See `Transport.take_deliveries`. Of sums of which the members send each other parts, over sockets."""
        return self._links.deliveries.take()

    @property
    def sent_bytes(self) -> int:
        """How many bytes this member has sent over sockets so far; what goes through shared memory is not counted."""
        return sum(peer.sent_bytes for peer in self._links.peers.values())

    def close(self) -> None:
        """See `Transport.close`."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self._links.interrupt()
            is_alone = self._exchanging.acquire(timeout=_CLOSE_LIMIT_S)
            try:
                self._links.close(farewell=self._failure is None)
            finally:
                if is_alone:
                    self._exchanging.release()

    def _exchange(self, action: Callable[[], _Result]) -> _Result:
        with self._exchanging:
            if self._is_closed:
                raise TransportClosedError("The transport is closed: form a group anew.")
            if self._failure is not None:
                raise type(self._failure)(str(self._failure))
            try:
                return action()
            except TransportClosedError:
                raise
            except BaseException as error:
                # The streams are in the middle of something: no further exchange can be right.
                self._failure = (
                    error
                    if isinstance(error, TfdistError)
                    else TransportClosedError(f"An exchange was broken off: {error!r}")
                )
                self._links.tell_failure(error)
                raise
