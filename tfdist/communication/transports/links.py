"""The connections to the other members, and the one loop that moves bytes on them.

Every pair of members has two TCP connections: one for data, one for small messages (`Channel`). The loop sends and
receives on all of them at once, never blocks in a call, and waits in `poll` only.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from tfdist.communication.transports import problems
from tfdist.communication.transports.channel import Channel, Frame
from tfdist.communication.transports.deliveries import Deliveries
from tfdist.communication.transports.header import HEADER_BYTES, Header
from tfdist.communication.transports.interface import TimeLimit, TransportClosedError
from tfdist.errors import TfdistError
from tfdist.messaging.liveness import UNREACHABLE, watch_connection

__all__ = ["PIECE_BYTES", "Links", "Peer"]

PIECE_BYTES = 1 << 19  # what is sent or added at once: half of a second-level cache
_MOST_VIEWS = 64
_GRACE_S = 1.0  # for the answers of those who are asked whom they wait for
_FAREWELL_S = 1.0  # for the reason of a member whose data connection has ended


class Peer:
    """The connections to one member, and what is under way on them.

    Attributes:
        rank: The member's number.
        name: Its task name and address.
        data: The socket for data.
        channel: The connection for small messages.
        outgoing: What is still to be sent, in order.
        incoming: Where the next bytes go, in order. Bytes for which there is no place yet stay in the kernel.
        received: How many bytes of the current exchange have come.
        sequence: The number of the current exchange with this member.
        on_received: Called after each receipt.
        polled: The events for which the data socket is registered.
        said_farewell: Whether the member has said that it closes its transport.
        is_checked: Whether the header of the current exchange has come and was right.
        began_at: When that was, by `time.monotonic`.
        sent_bytes: How many bytes have gone out on the data socket.
        timed_bytes: After how many bytes of the current exchange the time since then is noted; 0 for never.
        time_scale: By what that time is multiplied, to be that of all bytes of the kind.
    """

    def __init__(self, rank: int, name: str, data: socket.socket, channel: Channel) -> None:
        self.rank = rank
        self.name = name
        self.data = data
        self.channel = channel
        self.outgoing: deque[memoryview] = deque()
        self.incoming: deque[memoryview] = deque()
        self.received = 0
        self.sequence = 0
        self.on_received: Callable[[], None] | None = None
        self.polled = 0
        self.said_farewell = False
        self.is_checked = True
        self.began_at = 0.0
        self.timed_bytes = 0
        self.time_scale = 1.0
        self.sent_bytes = 0
        self._counts_may_differ = False
        self._header = bytearray(HEADER_BYTES)
        self._sent_header = Header(0, 0, 0, " ")

    def begin(self, kind: str, count: int, digest: int, *, counts_may_differ: bool = False) -> None:
        """Starts an exchange: a header goes out, and one is expected, which `Links` compares.

        Args:
            kind: Which exchange it is; one letter.
            count: Elements or rows.
            digest: A checksum of what must be the same for both.
            counts_may_differ: Whether `count` need not be the same for both.
        """
        self.sequence += 1
        self.received = 0
        self.on_received = None
        self.is_checked = False
        self.timed_bytes = 0
        self._counts_may_differ = counts_may_differ
        self._sent_header = Header(self.sequence, count, digest, kind)
        self.outgoing.append(memoryview(self._sent_header.to_bytes()))
        self.incoming.append(memoryview(self._header))

    def expect(self, place: memoryview) -> None:
        """Says where the next bytes go. A place without bytes would look like the end of the stream."""
        if len(place):
            self.incoming.append(place)

    def their_count(self) -> int:
        """The count in the header that has come."""
        return Header.from_bytes(self._header).size

    def check_header(self, own_name: str) -> None:
        """Compares the header that has come with the one that was sent.

        Raises:
            ArgumentError: When the member makes another exchange.
        """
        theirs = Header.from_bytes(self._header)
        own = self._sent_header
        if theirs != (own._replace(size=theirs.size) if self._counts_may_differ else own):
            raise problems.mismatch(own_name, self.name, str(own), str(theirs))
        self.is_checked = True

    def send_some(self) -> bool:
        """Sends at most about a piece. Returns whether anything went out.

        Raises:
            OSError: When the connection is gone.
        """
        views: list[memoryview] = []
        size = 0
        for view in self.outgoing:
            views.append(view)
            size += len(view)
            if size >= PIECE_BYTES or len(views) == _MOST_VIEWS:
                break
        try:
            sent = self.data.send(views[0]) if len(views) == 1 else self.data.sendmsg(views)
        except BlockingIOError:
            return False
        self.sent_bytes += sent
        _drop(self.outgoing, sent)
        return True

    def receive_some(self) -> int:
        """Receives into the places that there are. Returns the number of bytes, 0 at the end of the stream.

        Raises:
            OSError: When the connection is gone; BlockingIOError when nothing has come.
        """
        if len(self.incoming) == 1:
            received = self.data.recv_into(self.incoming[0])
        else:
            views: list[memoryview] = []
            size = 0
            for view in self.incoming:
                views.append(view)
                size += len(view)
                if size >= PIECE_BYTES or len(views) == _MOST_VIEWS:
                    break
            received = self.data.recvmsg_into(views)[0]
        _drop(self.incoming, received)
        self.received += received
        return received


def _drop(views: deque[memoryview], size: int) -> None:
    while size:
        if size < len(views[0]):
            views[0] = views[0][size:]
            return
        size -= len(views.popleft())


class Links:
    """All connections of this member.

    Attributes:
        rank: This member's number.
        names: The task names with addresses, by rank.
        peers: The other members, by rank.
        limit: How long to wait for a sign of life of what is needed.
        deliveries: How long parts of large sums took to come.
    """

    def __init__(self, rank: int, names: list[str], peers: Mapping[int, Peer], limit: TimeLimit) -> None:
        self.rank = rank
        self.names = names
        self.peers = dict(sorted(peers.items()))
        self.limit = limit
        self.deliveries = Deliveries()
        self._poll = select.poll()
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._poll.register(self._wake, select.POLLIN)
        self._by_data = {peer.data.fileno(): peer for peer in self.peers.values()}
        self._by_channel = {peer.channel.socket.fileno(): peer for peer in self.peers.values()}
        for number in self._by_channel:
            self._poll.register(number, select.POLLIN)
        self._waits_for: dict[int, list[int]] = {}
        self._need: Mapping[int, int] = {}
        self._is_running = False
        self._frames: dict[tuple[str, int], Frame] = {}
        self._is_closing = False
        self._network_limit: TimeLimit | None = None
        self._unreachable: set[int] = set()  # ranks whose machines gave no answer
        self._doing = ""
        self._report: Frame | None = None  # of the failure that this member has seen or was told of
        _ALL.add(self)

    def watch_network(self, limit: TimeLimit) -> None:
        """Counts members as lost whose machines give no answer for a time, whatever their processes do.

        The connections for small messages tell: they are idle, as the kernel's asking needs it.
        """
        self._network_limit = limit
        for peer in self.peers.values():
            watch_connection(peer.channel.socket, limit.seconds)

    def run(self, need: Mapping[int, int], doing: str, *, flush: bool = True) -> None:
        """Moves bytes until enough has come.

        Args:
            need: For each rank that is waited for, how many bytes of the exchange must have come from it. May be
                changed by `on_received` of a peer.
            doing: What this is, for errors.
            flush: Whether to wait until all that is to be sent has gone to the system, too.

        Raises:
            PeerLostError, TimeLimitError, TransportClosedError: See `Transport.all_reduce_sum`.
        """
        self._doing, self._need, self._is_running = doing, need, True
        self.send()
        self._loop(lambda: any(self.peers[r].received < n for r, n in need.items()) or (flush and bool(self._unsent())))
        self._is_running = False

    def send_frame(self, ranks: Iterable[int], frame: Frame) -> None:
        """Sends a small message to some members."""
        for rank in ranks:
            self.peers[rank].channel.send(frame)

    def wait_for_frames(self, kind: str, ranks: Iterable[int], doing: str) -> dict[int, Frame]:
        """Waits for a small message of a kind from each of some members, and takes it.

        Raises:
            PeerLostError, TimeLimitError, TransportClosedError: As `run`.
        """
        self._doing = doing
        wanted = [(kind, rank) for rank in ranks]
        self._loop(lambda: any(key not in self._frames for key in wanted), wanted)
        return {rank: self._frames.pop((kind, rank)) for kind, rank in wanted}

    def take_frame(self, rank: int, frame: Frame) -> None:
        """Acts on a small message.

        Raises:
            TfdistError: When it tells of a failure.
        """
        kind = frame["kind"]
        if kind == "waits for whom":
            if self._is_running:
                self.peers[rank].channel.send({"kind": "waits", "ranks": self._missing()})
        elif kind == "waits":
            self._waits_for[rank] = frame["ranks"]
        elif kind == "farewell":
            self.peers[rank].said_farewell = True
        elif kind == "failure":
            raise self._from_report(rank, frame)
        else:
            self._frames[(kind, rank)] = frame

    def tell_failure(self, error: BaseException) -> None:
        """Passes on to all members that this one gives up, and why."""
        report = self._report or {"how": problems.FAILED, "ranks": [self.rank], "detail": _first_lines(error)}
        self.send_frame(self.peers, {"kind": "failure", **report})

    def interrupt(self) -> None:
        """Makes a wait in another thread end with `TransportClosedError`."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def close(self, *, farewell: bool) -> None:
        """Ends all connections. No other thread may be in `run`."""
        if farewell:
            self.send_frame(self.peers, {"kind": "farewell"})
        for peer in self.peers.values():
            for connected in (peer.data, peer.channel.socket):
                with contextlib.suppress(OSError):
                    connected.shutdown(socket.SHUT_WR)  # what was sent still arrives; a close could cut it off
                connected.close()
        self._wake.close()
        self._waker.close()

    def close_in_child(self) -> None:
        """Gives up a forked process's copies, without which the others see at once when the member itself has died."""
        for peer in self.peers.values():
            peer.data.close()
            peer.channel.socket.close()

    def _loop(self, goes_on: Callable[[], bool], wanted: list[tuple[str, int]] | None = None) -> None:
        """Moves what can be moved while `goes_on`; `wanted` are the frames that are waited for, instead of bytes."""
        deadline, has_asked = time.monotonic() + self.limit.seconds, False
        while goes_on():
            if self._is_closing:
                raise TransportClosedError(f"The transport was closed by this process while it was {self._doing}.")
            if self._unreachable:
                self._lose_unreachable(self._missing() if wanted is None else [])
            self._register()
            events = self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000 + 1)
            if not events and time.monotonic() >= deadline:
                missing = self._missing() if wanted is None else [r for k, r in wanted if (k, r) not in self._frames]
                if has_asked or wanted is not None:
                    self._give_up(missing)
                has_asked, deadline = True, time.monotonic() + min(_GRACE_S, self.limit.seconds)
                self._waits_for = {}
                self.send_frame(self.peers, {"kind": "waits for whom"})
                continue
            if self._move(events):
                deadline, has_asked = time.monotonic() + self.limit.seconds, False
            if wanted is not None:
                for rank in {r for k, r in wanted if (k, r) not in self._frames and not self.peers[r].channel.is_open}:
                    self._lose(self.peers[rank], self._how_it_ended(rank))

    def _move(self, events: list[tuple[int, int]]) -> bool:
        """Sends, receives, and acts on small messages. Returns whether data moved."""
        has_moved = False
        for number, event in events:
            peer = self._by_data.get(number)
            if peer is None:
                if number in self._by_channel:
                    self._read_channel(self._by_channel[number])
                continue
            try:
                if peer.incoming and event & ~select.POLLOUT:
                    if not peer.receive_some():
                        self._lose(peer, "its connection was closed")
                    has_moved = True
                    if not peer.is_checked and peer.received >= HEADER_BYTES:
                        peer.check_header(self.names[self.rank])
                        peer.began_at = time.monotonic()
                    if 0 < peer.timed_bytes <= peer.received:
                        self.deliveries.note(peer.rank, (time.monotonic() - peer.began_at) * peer.time_scale)
                        peer.timed_bytes = 0
                    if peer.on_received is not None:
                        peer.on_received()
                if peer.outgoing and event & ~select.POLLIN and peer.send_some():
                    has_moved = True
            except BlockingIOError:
                continue
            except TfdistError:
                raise  # some of these are OSErrors, too
            except OSError as error:
                self._lose(peer, f"its connection failed ({error.strerror or error})")
        return has_moved

    def send(self) -> None:
        """Sends of what is to be sent as much as goes at once.

        Raises:
            PeerLostError: When a connection is gone.
        """
        for peer in self._unsent():
            try:
                peer.send_some()
            except OSError as error:
                self._lose(peer, f"its connection failed ({error.strerror or error})")

    def _register(self) -> None:
        for number, peer in self._by_data.items():
            wanted = (select.POLLIN if peer.incoming else 0) | (select.POLLOUT if peer.outgoing else 0)
            if wanted != peer.polled:
                if wanted:
                    self._poll.register(number, wanted)
                else:
                    self._poll.unregister(number)
                peer.polled = wanted

    def _unsent(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.outgoing]

    def _missing(self) -> list[int]:
        """The ranks from which something is waited for, or else those that do not take what is sent to them."""
        short = [rank for rank, count in self._need.items() if self.peers[rank].received < count]
        return short or [peer.rank for peer in self._unsent()]

    def _read_channel(self, peer: Peer) -> None:
        for frame in peer.channel.read():
            self.take_frame(peer.rank, frame)
        if not peer.channel.is_open and peer.channel.socket.fileno() in self._by_channel:
            # Only whoever needs something from this member has lost it: it may have ended after its last exchange.
            number = peer.channel.socket.fileno()
            self._poll.unregister(number)
            del self._by_channel[number]
            if peer.channel.failure is not None and peer.channel.failure.errno in UNREACHABLE:
                self._unreachable.add(peer.rank)

    def _lose_unreachable(self, missing: list[int]) -> None:
        for rank in self._unreachable.intersection(missing):
            self._lose(self.peers[rank], self._how_it_ended(rank))

    def _how_it_ended(self, rank: int) -> str:
        if rank not in self._unreachable:
            return "its connection was closed"
        limit = "" if self._network_limit is None else f" for {self._network_limit}"
        return f"its machine, or the network between, gave no answer{limit}"

    def _lose(self, peer: Peer, how: str) -> NoReturn:
        poll = select.poll()
        poll.register(peer.channel.socket, select.POLLIN)
        end = time.monotonic() + _FAREWELL_S
        while peer.channel.is_open and not peer.said_farewell and (left := end - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                self._read_channel(peer)  # raises when the peer has left because of a third member
        if peer.said_farewell:
            how = "it closed its transport"
        raise self._reported(problems.LOST, [peer.rank], f"{how} while {self.names[self.rank]} was {self._doing}")

    def _give_up(self, missing: list[int]) -> NoReturn:
        silent = problems.find_silent({**self._waits_for, self.rank: missing}, self.rank)
        detail = f"while {self.names[self.rank]} was {self._doing}"
        if not silent:
            detail += "; all members answer, but no data moves between them"
        raise self._reported(problems.SILENT, silent or missing, detail)

    def _reported(self, how: str, ranks: list[int], detail: str) -> TfdistError:
        self._report = {"how": how, "ranks": ranks, "detail": detail, "limit_s": self.limit.seconds}
        return problems.from_report(self._report, self.names, self.rank, self.limit)

    def _from_report(self, reporter: int, frame: Frame) -> TfdistError:
        self._report = {key: value for key, value in frame.items() if key != "kind"}
        return problems.from_report(self._report, self.names, self.rank, self.limit, self.names[reporter])


_ALL: weakref.WeakSet[Links] = weakref.WeakSet()


def _close_in_child() -> None:
    for links in list(_ALL):
        links.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)


def _first_lines(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:2000]}"
