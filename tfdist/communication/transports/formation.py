"""How the members of a group find each other, prove who they are, and agree on who shares memory."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import replace

from tfdist.cluster.address import split_address
from tfdist.communication.transports import problems, shared_memory
from tfdist.communication.transports.channel import Channel, Frame
from tfdist.communication.transports.host_exchange import piece_bytes_for, shared_bytes
from tfdist.communication.transports.interface import Array, TimeLimit
from tfdist.communication.transports.links import Links, Peer
from tfdist.communication.transports.listener import Listener, enlarge_buffers
from tfdist.communication.transports.tcp import TcpTransport
from tfdist.errors import ArgumentError, describe_problem
from tfdist.messaging import handshake
from tfdist.messaging.handshake import Claims, HandshakeError

__all__ = ["form_group"]

_LOG = logging.getLogger("tfdist")
_MOST_STRANGERS = 256  # half-open connections at a time; the oldest goes first
_STRANGER_LIMIT_S = 10.0
_RETRY_AFTER_S = 0.2
_REFUSAL_AFTER_S = 1.0
_DATA, _CHANNEL = "data", "messages"


def form_group(
    listener: Listener,
    addresses: Sequence[str],
    rank: int,
    *,
    secret: bytes,
    names: Sequence[str],
    group: str,
    forming_limit: TimeLimit,
    exchange_limit: TimeLimit,
    network_limit: TimeLimit | None = None,
    shares_memory: bool = True,
) -> TcpTransport:
    """Connects this process with the other members of its group. Collective.

    Every connection is authenticated both ways with the job's secret. Whoever else connects is dropped, and logged
    once. What is exchanged afterwards is neither encrypted nor signed.

    Args:
        listener: From `listen`; closed when this returns or raises.
        addresses: `host:port` of every member's listener, by rank.
        rank: This member's.
        secret: The job's secret, the same for all; best 32 random bytes.
        names: The members' task names, such as `worker 1`, by rank; for errors.
        group: The same for all members, and another one for each attempt to form a group in a job.
        forming_limit: How long to wait for all members.
        exchange_limit: How long an exchange waits for a sign of life.
        network_limit: How long another member's machine may give no answer; None for as long as the system allows.
        shares_memory: Whether this member may share memory with others on its host.

    Returns:
        The transport.

    Raises:
        ArgumentError: When another member has another secret or group, or the arguments cannot be right.
        PeerLostError: When a member gives up while the group forms.
        TimeLimitError: When members are missing at the limit.
    """
    with contextlib.closing(listener):
        if not 0 <= rank < len(addresses) == len(names) or not secret:
            raise ArgumentError(
                describe_problem(
                    "The description of a group cannot be right",
                    received=f"rank={rank}, {len(addresses)} addresses, {len(names)} names, {len(secret)} secret bytes",
                    expected="a rank below the number of addresses, as many names, and a secret",
                    fix="pass the same lists on all members",
                )
            )
        host = shared_memory.host_identity() if shares_memory else ""
        own = Claims(group, rank, -1, len(addresses), "", host)
        forming = _Forming(listener.socket, (list(names), list(addresses)), own, secret, forming_limit)
        peers = forming.run()
        links = Links(rank, [f"{n} at {a}" for n, a in zip(names, addresses, strict=True)], peers, forming_limit)
        if network_limit is not None:
            links.watch_network(network_limit)
        try:
            for peer, frame in forming.early_frames:
                links.take_frame(peer, frame)
            piece_bytes, groups, memory = _share_memory(links, [forming.hosts[r] for r in range(len(addresses))])
            links.send_frame(peers, {"kind": "formed"})
            links.wait_for_frames("formed", peers, "forming the group")
        except BaseException as error:
            links.tell_failure(error)
            links.close(farewell=False)
            raise
        links.limit = exchange_limit
        return TcpTransport(links, groups, memory, piece_bytes)


class _Attempt:
    """One connection whose other side has not yet proved who it is."""

    def __init__(
        self, connection: socket.socket, steps: handshake.Steps, where: str, wanted: tuple[str, int] | None
    ) -> None:
        self.socket = connection
        self.where = where
        self.wanted = wanted  # the channel and rank that this process connects for; None for an accepted connection
        self.theirs: Claims | None = None
        self.end = time.monotonic() + _STRANGER_LIMIT_S
        self._steps = steps
        self._unsent = b""
        self._unread = b""
        self._num_wanted = 0
        self._step(None)

    @property
    def events(self) -> int:
        """What to poll for."""
        return select.POLLOUT if self._unsent else select.POLLIN

    @property
    def is_done(self) -> bool:
        """Whether both sides have proved who they are."""
        return self.theirs is not None and not self._unsent

    def move(self) -> None:
        """Sends or receives what can be.

        Raises:
            HandshakeError, EOFError: When this leads to nothing.
            OSError: When the connection fails.
        """
        with contextlib.suppress(BlockingIOError):
            if self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
                return
            while not self.is_done and not self._unsent:
                received = self.socket.recv(self._num_wanted - len(self._unread))
                if not received:
                    self._steps.throw(EOFError("it closed the connection"))
                self._unread += received
                if len(self._unread) == self._num_wanted:
                    message, self._unread = self._unread, b""
                    try:
                        self._step(message)
                    except HandshakeError:
                        self.socket.send(self._unsent)  # the verdict or the proof, so that the other side knows, too
                        raise

    def _step(self, message: bytes | None) -> None:
        try:
            wish = next(self._steps) if message is None else self._steps.send(message)
            while isinstance(wish, bytes):
                self._unsent += wish
                wish = next(self._steps)
            self._num_wanted = wish
        except StopIteration as end:
            self.theirs = end.value


class _Forming:
    """The connecting of all members with each other: each connects to those of lower rank, and accepts the others."""

    def __init__(
        self,
        listening: socket.socket,
        members: tuple[list[str], list[str]],
        own: Claims,
        secret: bytes,
        limit: TimeLimit,
    ) -> None:
        names, addresses = members
        self._listening, self._addresses, self._own, self._secret, self._limit = (
            listening,
            addresses,
            own,
            secret,
            limit,
        )
        self._names = [f"{name} at {address}" for name, address in zip(names, addresses, strict=True)]
        self._others = [rank for rank in range(len(addresses)) if rank != own.rank]
        self._attempts: dict[int, _Attempt] = {}
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._channels: dict[int, tuple[int, Channel]] = {}  # by descriptor; with the rank
        self._try_at = {(kind, rank): 0.0 for kind in (_CHANNEL, _DATA) for rank in range(own.rank)}
        self._num_failed = dict.fromkeys(self._try_at, 0)
        self._reasons: dict[int, str] = {}
        self._refusal: ArgumentError | None = None
        self._refused_at = 0.0
        self._logged: set[tuple[str, str]] = set()
        self.hosts = {own.rank: own.host}
        self.early_frames: list[tuple[int, Frame]] = []

    def run(self) -> dict[int, Peer]:
        """Connects. Returns the peers, by rank."""
        end = time.monotonic() + self._limit.seconds
        report: Frame | None = None
        try:
            while missing := self._missing():
                now = time.monotonic()
                if self._refusal is not None and self._is_late_to_refuse(now):
                    raise self._refusal
                if now >= end:
                    details = [f"{self._names[r]}: {self._reasons.get(r, 'it has not come')}" for r in missing]
                    report = {
                        "how": "silent",
                        "ranks": missing,
                        "detail": f"while the group formed ({'; '.join(details)})",
                    }
                    raise problems.from_report(
                        {**report, "limit_s": self._limit.seconds}, self._names, self._own.rank, self._limit
                    )
                self._connect(now)
                self._wait(min(end, now + _RETRY_AFTER_S))
        except BaseException as error:
            self._end(error, report)
            raise
        for attempt in self._attempts.values():
            attempt.socket.close()
        channels = dict(self._channels.values())
        return {r: Peer(r, self._names[r], self._sockets[_DATA, r], channels[r]) for r in self._others}

    def _is_late_to_refuse(self, now: float) -> bool:
        is_trying = self._try_at or any(attempt.wanted is not None for attempt in self._attempts.values())
        return now >= self._refused_at + _REFUSAL_AFTER_S or not is_trying

    def _missing(self) -> list[int]:
        return [r for r in self._others if (_DATA, r) not in self._sockets or (_CHANNEL, r) not in self._sockets]

    def _connect(self, now: float) -> None:
        for (kind, rank), when in list(self._try_at.items()):
            if when > now:
                continue
            self._try_at[kind, rank] = now + self._limit.seconds  # until this attempt has failed
            own = replace(self._own, channel=kind, to_rank=rank)
            host, port = split_address(self._addresses[rank])
            try:
                places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                family, _, _, _, place = places[self._num_failed[kind, rank] % len(places)]
                connection = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                self._try_again((kind, rank), f"{error.strerror or error}")
                continue
            enlarge_buffers(connection)
            connection.setblocking(False)
            attempt = _Attempt(connection, handshake.initiate(own, self._secret), self._names[rank], (kind, rank))
            attempt.end = now + self._limit.seconds
            self._attempts[connection.fileno()] = attempt
            connection.connect_ex(place)  # how it went is seen when the hello is sent

    def _try_again(self, wanted: tuple[str, int], reason: str) -> None:
        self._reasons[wanted[1]] = reason
        self._num_failed[wanted] += 1
        self._try_at[wanted] = time.monotonic() + _RETRY_AFTER_S

    def _wait(self, end: float) -> None:
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        for number, attempt in self._attempts.items():
            poll.register(number, attempt.events)
        for number in self._channels:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(max(0.0, end - time.monotonic()) * 1000 + 1):
            if number == self._listening.fileno():
                self._accept()
            elif number in self._channels:
                self._read_channel(*self._channels[number])
            elif number in self._attempts:
                self._move(number)
        now = time.monotonic()
        for number, attempt in list(self._attempts.items()):
            if now > attempt.end:
                self._drop(number, "it sent nothing", None)

    def _accept(self) -> None:
        try:
            connection, address = self._listening.accept()
        except OSError:
            return  # it has gone away already
        connection.setblocking(False)
        strangers = [number for number, attempt in self._attempts.items() if attempt.wanted is None]
        if len(strangers) >= _MOST_STRANGERS:
            self._drop(strangers[0], "too many others came", None)
        where = str(address[0])
        self._attempts[connection.fileno()] = _Attempt(
            connection, handshake.accept(self._own, self._secret), where, None
        )

    def _move(self, number: int) -> None:
        attempt = self._attempts[number]
        try:
            attempt.move()
        except HandshakeError as error:
            if error.is_final and attempt.wanted is not None:
                # Not raised at once: first, all others learn from this one's hello why it does not come.
                peer, own = self._names[attempt.wanted[1]], self._names[self._own.rank]
                self._refusal = self._refusal or _refused(peer, str(error), own)
                self._refused_at = self._refused_at or time.monotonic()
                self._attempts.pop(number).socket.close()
                self._try_at.pop(attempt.wanted, None)
                return
            self._drop(number, str(error), error.claims)
        except (OSError, EOFError) as error:
            self._drop(number, getattr(error, "strerror", None) or str(error), None)
        else:
            if attempt.is_done and attempt.theirs is not None:
                del self._attempts[number]
                self._keep(attempt.socket, attempt.theirs)

    def _drop(self, number: int, reason: str, claims: Claims | None) -> None:
        attempt = self._attempts.pop(number)
        attempt.socket.close()
        if attempt.wanted is not None:
            self._try_again(attempt.wanted, reason)
            return
        if claims is not None and claims.rank in self._others:
            self._reasons[claims.rank] = f"a connection from {attempt.where} says it is this one, but {reason}"
        if (attempt.where, reason) not in self._logged:
            self._logged.add((attempt.where, reason))
            _LOG.warning("Dropped a connection from %s while the group of workers formed: %s.", attempt.where, reason)

    def _keep(self, connection: socket.socket, theirs: Claims) -> None:
        kind, rank = theirs.channel, theirs.rank
        old = self._sockets.pop((kind, rank), None)
        if old is not None:  # the member has given that connection up
            self._channels.pop(old.fileno(), None)
            old.close()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[kind, rank] = connection
        self._try_at.pop((kind, rank), None)
        self.hosts[rank] = theirs.host
        if kind == _CHANNEL:
            self._channels[connection.fileno()] = (rank, Channel(connection))

    def _read_channel(self, rank: int, channel: Channel) -> None:
        for frame in channel.read():
            if frame["kind"] == "failure":
                raise problems.from_report(frame, self._names, self._own.rank, self._limit, self._names[rank])
            self.early_frames.append((rank, frame))
        if not channel.is_open:
            raise problems.lost_peers([self._names[rank]], "its connection was closed while the group formed")

    def _end(self, error: BaseException, report: Frame | None) -> None:
        report = report or {"how": "failed", "ranks": [self._own.rank], "detail": f"{type(error).__name__}: {error}"}
        for _, channel in self._channels.values():
            channel.send({"kind": "failure", **report})
        for attempt in self._attempts.values():
            attempt.socket.close()
        for connection in self._sockets.values():
            connection.close()


def _share_memory(links: Links, hosts: Sequence[str]) -> tuple[int, list[list[int]], Array | None]:
    """Agrees with all members on who shares memory. Returns the size of a piece, the groups, and the memory."""
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host or f"alone {rank}", []).append(rank)
    piece_bytes = piece_bytes_for(max(map(len, by_host.values())))
    own = next(ranks for ranks in by_host.values() if links.rank in ranks)
    memory, others = None, own[1:]
    if others and links.rank == own[0]:
        memory, refusal = _offer_memory(links, others, shared_bytes(len(own), piece_bytes))
        links.send_frame(links.peers, {"kind": "host", "refusal": refusal})
        if refusal:
            memory = None
            _LOG.warning("Workers on this host use sockets instead of shared memory: %s.", refusal)
    elif others:
        memory = _accept_memory(links, own[0])
    leaders = [ranks[0] for ranks in by_host.values() if len(ranks) > 1 and ranks[0] != links.rank]
    decisions = links.wait_for_frames("host", leaders, "agreeing on shared memory")
    refused = {leader for leader, frame in decisions.items() if frame["refusal"]}
    if memory is None and others and links.rank == own[0]:
        refused.add(links.rank)
    if own[0] in refused:
        memory = None
    groups = [g for ranks in by_host.values() for g in ([[r] for r in ranks] if ranks[0] in refused else [ranks])]
    if memory is not None:
        memory.close_descriptor()
    return piece_bytes, sorted(groups), None if memory is None else memory.array


def _offer_memory(
    links: Links, others: Sequence[int], size_bytes: int
) -> tuple[shared_memory.SharedMemory | None, str]:
    """Makes memory and lets the others attach. Returns it, and why it cannot be used, or an empty text."""
    try:
        memory = shared_memory.create(size_bytes)
    except OSError as error:
        links.send_frame(others, {"kind": "memory"})
        return None, f"the system refuses {size_bytes >> 20} MB ({error.strerror or error})"
    links.send_frame(others, {"kind": "memory", "address": memory.address})
    answers = links.wait_for_frames("attached", others, "sharing memory")
    problem = next((f"{links.names[r]}: {a['problem']}" for r, a in answers.items() if a["problem"]), "")
    return memory, problem


def _accept_memory(links: Links, leader: int) -> shared_memory.SharedMemory | None:
    address = links.wait_for_frames("memory", [leader], "sharing memory")[leader].get("address")
    if address is None:
        return None
    memory, problem = None, ""
    try:
        memory = shared_memory.attach(**address)
    except OSError as error:
        problem = f"it cannot be opened ({error.strerror or error})"
    links.send_frame([leader], {"kind": "attached", "problem": problem})
    return memory


def _refused(peer: str, reason: str, own_name: str) -> ArgumentError:
    return ArgumentError(
        describe_problem(
            f"{own_name} and {peer} cannot form a group",
            received=f"about {peer}: {reason}",
            expected="the same secret, group and addresses on all members of a job",
            fix="give all tasks the same secret, as a launcher does, and end tasks that are left from another job",
        )
    )
