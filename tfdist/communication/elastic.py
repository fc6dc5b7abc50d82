"""A transport whose members may change: who is lost, is left behind, and the others go on in their processes.

An *operation* is what all members do alike and can do again as a whole: a training step, or telling each other a
number. Every exchange belongs to one, and every operation has at least one. When a member is lost, the others form a
new group within the exchange that failed. Exchanges do not fail everywhere at once: some members may have finished the
operation and be in the next one. They are one exchange ahead at most, because the next one needs everybody. So they
hold the result that the others lack, and it is the last one of that operation: the others get it and finish, too. Then
all are in the same operation, and those who had begun it do it again, with the new members (`MembershipChangedError`).
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from absl import logging

from tfdist.cluster.address import split_address
from tfdist.communication.transports import Listener, TcpTransport, TimeLimit, form_group, listen
from tfdist.communication.transports.interface import Array
from tfdist.errors import PeerLostError, TfdistError, TimeLimitError, describe_problem
from tfdist.rendezvous.client import Group, RendezvousClient

__all__ = ["ElasticTransport", "MembershipChangedError", "enter_job"]

_TRIES = 5
_FORMING_LIMIT = TimeLimit(15.0, "the time in which members of a new group connect")
_MOST_FRUITLESS = 20  # groups in a row that were formed and made no exchange: more than losses explain
_NO_STATE = -1
_Result = TypeVar("_Result", bound=Sequence[Array])


class MembershipChangedError(TfdistError):
    """The members of the job changed during an operation, which is to be done again."""


class _Connect(Protocol):
    def __call__(self, listener: Listener, group: Group) -> TcpTransport: ...


class ElasticTransport:
    """A `Transport` over the members of an elastic job, in rounds. One thread at a time may use it.

    Until `join` it has one member, this process: so a newcomer can build its model before it takes part.

    Args:
        client: Asks the rendezvous.
        listen: Opens a port, and returns the listener and the address at which others reach it.
        connect: Forms a group of members that all know of each other.
        regroup_limit_s: How long to wait until the others have noticed that a member is lost, in seconds.
        start_limit_s: How long to wait for the first round.

    Attributes:
        client: What asks the rendezvous.
        number: Of the present round; -1 before the first.
        members: Their names, by rank.
        is_newcomer: Whether the job had begun before this process, which has not been taken in yet.
    """

    name = "tcp"

    def __init__(
        self,
        client: RendezvousClient,
        listen: Callable[[], tuple[Listener, str]],
        connect: _Connect,
        *,
        regroup_limit_s: float,
        start_limit_s: float,
    ) -> None:
        self.client = client
        self._listen = listen
        self._connect = connect
        self._regroup_limit_s = regroup_limit_s
        self._start_limit_s = start_limit_s
        self._transport: TcpTransport | None = None
        self._operation = 0
        self._last: Sequence[Array] = ()
        self._received: Sequence[Array] | None = None
        self._message = b""
        self._num_fruitless = 0
        self.number = -1
        self.members: tuple[str, ...] = (client.process,)
        self.rank = 0
        self.is_newcomer = client.enter()

    @property
    def num_members(self) -> int:
        """How many members there are."""
        return len(self.members)

    @property
    def crosses_network(self) -> bool:
        """See `Transport`."""
        return self._transport is not None and self._transport.crosses_network

    def start(self) -> None:
        """Takes part in the first round. Collective: every process that is not a newcomer calls it."""
        self._regroup(at_boundary=True, limit_s=self._start_limit_s)

    def admit(self, message: bytes) -> None:
        """Takes newcomers in, between two operations. Collective: every member calls it at the same place.

        Args:
            message: What the newcomers are told; that of rank 0 counts.
        """
        self.begin_operation()
        while not self._regroup(at_boundary=True, message=message):
            pass  # some had not finished the operation before this one

    def join(self) -> bytes:
        """Waits until the members take this newcomer in.

        Returns:
            What rank 0 tells it.
        """
        self._regroup(at_boundary=True, limit_s=self._start_limit_s)
        self.is_newcomer = False
        return self._message

    def begin_operation(self) -> None:
        """Every exchange from now on belongs to another operation. Every member calls it."""
        self._operation += 1

    def all_reduce_sum(self, parts: Sequence[Array], *, checksum: int = 0) -> list[Array]:
        """See `Transport.all_reduce_sum`.

        Raises:
            MembershipChangedError: The operation has to be done again.
        """
        return list(
            self._exchange(lambda transport: transport.all_reduce_sum(parts, checksum=checksum), lambda: list(parts))
        )

    def all_gather(self, rows: Array) -> list[Array]:
        """See `Transport.all_gather`.

        Raises:
            MembershipChangedError: The operation has to be done again.
        """
        return list(self._exchange(lambda transport: transport.all_gather(rows), lambda: [rows]))

    def take_deliveries(self) -> tuple[float, float, int]:
        """See `Transport.take_deliveries`."""
        return (0.0, 0.0, -1) if self._transport is None else self._transport.take_deliveries()

    @property
    def sent_bytes(self) -> int:
        """See `TcpTransport.sent_bytes`; of the present group."""
        return 0 if self._transport is None else self._transport.sent_bytes

    def close(self) -> None:
        """Leaves the job. See `Transport.close`."""
        self.client.leave()
        if self._transport is not None:
            self._transport.close()

    def _exchange(self, act: Callable[[TcpTransport], _Result], alone: Callable[[], _Result]) -> Sequence[Array]:
        if self._transport is None:
            return alone()
        try:
            result: Sequence[Array] = act(self._transport)
        except (PeerLostError, TimeLimitError) as error:
            logging.warning("%s", error)
            self._num_fruitless += 1
            if self._num_fruitless > _MOST_FRUITLESS:
                raise
            began = time.monotonic()
            lost_of = self.members
            self._regroup(at_boundary=False)
            logging.warning(
                "The job goes on with %d of %d members, %s, %.2f s after the loss was noticed.",
                self.num_members,
                len(lost_of),
                ", ".join(self.members),
                time.monotonic() - began,
            )
            if self._received is None:
                raise MembershipChangedError("The members of the job have changed.") from error
            result = self._received
        self._last, self._num_fruitless = result, 0
        return result

    def _regroup(self, *, at_boundary: bool, message: bytes = b"", limit_s: float | None = None) -> bool:
        """Leaves the present group and takes part in the next. Returns whether all came at a boundary."""
        problem: TfdistError | None = None
        for _ in range(_TRIES):
            if self._transport is not None:
                self._transport.close()
            listener, address = self._listen()
            with contextlib.closing(listener):
                position = (_NO_STATE if self.is_newcomer else self._operation, int(at_boundary))
                group = self.client.ask(
                    address, position, at_boundary=at_boundary, limit_s=limit_s or self._regroup_limit_s
                )
                try:
                    self._transport = self._connect(listener, group)
                    self._received = self._catch_up(group, message)
                except (PeerLostError, TimeLimitError) as error:  # one more was lost meanwhile
                    problem = error
                    continue
            self.number, self.members, self.rank = group.number, group.members, group.rank
            return all(flag for _, flag in group.positions)
        raise TimeLimitError(
            describe_problem(
                f"{self.client.process} could not form a new group with the other members",
                received=f"{_TRIES} attempts that failed, the last one with: {problem}",
                expected="members that stay while a group is formed",
                fix="Look at the logs of the other tasks; with --max-restarts the job is started again.",
            )
        )

    def _catch_up(self, group: Group, message: bytes) -> Sequence[Array] | None:
        """Gives those who lack it the last result, and newcomers the message. Returns what this member lacked."""
        operations = [operation for operation, _ in group.positions]
        newest = max(operations)
        ahead = operations.index(newest)
        first = next(rank for rank, operation in enumerate(operations) if operation != _NO_STATE or newest == _NO_STATE)
        is_behind = [operation not in (newest, _NO_STATE) for operation in operations]
        is_new = [operation == _NO_STATE for operation in operations]
        self._message = b""
        if not any(is_behind) and not any(is_new):
            return None
        assert self._transport is not None
        payload = b""
        if group.rank == ahead and any(is_behind):
            payload = _encode(self._last)
        said = self._transport.all_gather(np.frombuffer(message if group.rank == first else b"", np.uint8))
        held = self._transport.all_gather(np.frombuffer(payload, np.uint8))
        if is_new[group.rank]:
            self._message = said[first].tobytes()
            self._operation = newest
        return _decode(held[ahead].tobytes()) if is_behind[group.rank] else None


def _encode(arrays: Sequence[Array]) -> bytes:
    head = json.dumps([[array.dtype.name, list(array.shape)] for array in arrays]).encode()
    return len(head).to_bytes(8, "big") + head + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def _decode(data: bytes) -> list[Array]:
    size = int.from_bytes(data[:8], "big")
    arrays, offset = [], 8 + size
    for name, shape in json.loads(data[8:offset]):
        array: Any = np.frombuffer(data, np.dtype(name), count=int(np.prod(shape, dtype=np.int64)), offset=offset)
        arrays.append(array.reshape(shape))
        offset += array.nbytes
    return arrays


def enter_job(
    rendezvous: str,
    secret: str,
    process: str,
    *,
    job: str = "",
    exchange_limit: TimeLimit,
    network_limit: TimeLimit,
    start_limit_s: float,
    regroup_limit_s: float,
    shares_memory: bool,
) -> ElasticTransport:
    """Tells the rendezvous that this process is there, and makes its transport. Not collective.

    Args:
        rendezvous: `host:port` of the rendezvous service.
        secret: The job's secret.
        process: This process's name, which no other process of the job ever has.
        job: The job's name, where several nodes take part.
        exchange_limit: How long an exchange waits for a sign of life.
        network_limit: How long another member's machine may give no answer.
        start_limit_s: How long to wait for the first round, or as a newcomer to be taken in, in seconds.
        regroup_limit_s: How long to wait for the other members when one is lost, in seconds.
        shares_memory: Whether members on one host may share memory.

    Raises:
        PeerLostError: The rendezvous cannot be reached.
    """
    host = _own_host(rendezvous)

    def open_port() -> tuple[Listener, str]:
        listener = listen(host)
        return listener, f"{host}:{listener.port}"

    def connect(listener: Listener, group: Group) -> TcpTransport:
        return form_group(
            listener,
            group.addresses,
            group.rank,
            secret=secret.encode(),
            names=group.members,
            group=f"tfdist/elastic/{group.number}",
            forming_limit=_FORMING_LIMIT,
            exchange_limit=exchange_limit,
            network_limit=network_limit,
            shares_memory=shares_memory,
        )

    client = RendezvousClient(rendezvous, secret, process, job)
    return ElasticTransport(client, open_port, connect, regroup_limit_s=regroup_limit_s, start_limit_s=start_limit_s)


def _own_host(rendezvous: str) -> str:
    """This machine's address as the rendezvous sees it. Nothing is sent to find it."""
    host, port = split_address(rendezvous)
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect(where)
        own = str(asking.getsockname()[0])
    return f"[{own}]" if ":" in own else own
