"""A process's side of the rendezvous."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfdist.cluster.address import split_address
from tfdist.errors import PeerLostError, TimeLimitError, describe_problem
from tfdist.messaging.connection import Connection, HandshakeError
from tfdist.rendezvous.server import purpose_of

__all__ = ["Group", "RendezvousClient"]

_MESSAGE = b"M"
_CONNECT_LIMIT_S = 10.0
_ANSWER_MARGIN_S = 10.0


@dataclass(frozen=True)
class Group:
    """A round, as its members are told of it.

    Attributes:
        number: From 0, for the job.
        members: Their names, by rank.
        addresses: Where they are reached.
        positions: How far they had come when they asked.
        rank: This process's.
    """

    number: int
    members: tuple[str, ...]
    addresses: tuple[str, ...]
    positions: tuple[tuple[int, ...], ...]
    rank: int


class RendezvousClient:
    """Asks the rendezvous service.

    Args:
        address: The service's.
        secret: The job's.
        process: This process's name, which no other process of the job ever has.
        job: The job's name, where several nodes take part.
    """

    def __init__(self, address: str, secret: str, process: str, job: str = "") -> None:
        self._purpose = purpose_of(job)
        self.address = address
        self.process = process
        self._secret = secret.encode()
        self._presence: Connection | None = None

    def enter(self) -> bool:
        """Tells the service that this process is there, as long as it lives.

        Returns:
            Whether the job had begun without it.
        """
        connection = self._connect(_CONNECT_LIMIT_S)
        try:
            answer = self._converse(connection, {"kind": "enter", "process": self.process})
        except (OSError, EOFError) as error:
            connection.close()
            raise self._lost(error) from error
        connection.end = math.inf
        self._presence = connection  # stays open
        return bool(answer["is_newcomer"])

    def leave(self) -> None:
        """Tells the service that this process is gone, as its end would."""
        if self._presence is not None:
            self._presence.close()
            self._presence = None

    def ask(self, address: str, position: Sequence[int], *, at_boundary: bool, limit_s: float) -> Group:
        """Waits for the next group. Every member of the job must ask.

        Args:
            address: Where the others reach this process.
            position: How far it has come; every member learns it.
            at_boundary: Whether it is between two steps, where newcomers may be taken in.
            limit_s: How long to wait, in seconds.

        Raises:
            PeerLostError: The job cannot go on in these processes.
            TimeLimitError: The others did not come.
        """
        request = {"kind": "ask", "process": self.process, "address": address, "at_boundary": at_boundary}
        answer = self._request({**request, "position": list(position)}, limit_s, "the other members of the job")
        if "problem" in answer:
            raise PeerLostError(
                describe_problem(
                    f"{self.process} cannot go on in this process",
                    received=str(answer["problem"]),
                    expected="enough members of the job to form a group",
                    fix="Look at the logs of those that ended first; with --max-restarts the job is started again.",
                )
            )
        members = tuple(map(str, answer["members"]))
        return Group(
            number=int(answer["number"]),
            members=members,
            addresses=tuple(map(str, answer["addresses"])),
            positions=tuple(tuple(map(int, each)) for each in answer["positions"]),
            rank=members.index(self.process),
        )

    def count_newcomers(self) -> int:
        """How many processes wait to be taken in; 0 where the service cannot be reached, which matters later only."""
        try:
            return int(self._request({"kind": "newcomers"}, _CONNECT_LIMIT_S, "the rendezvous service")["count"])
        except (PeerLostError, TimeLimitError):
            return 0

    def set(self, key: str, value: str) -> None:
        """Leaves a value for the other processes."""
        self._request({"kind": "set", "key": key, "value": value}, _CONNECT_LIMIT_S, "the rendezvous service")

    def get(self, key: str, limit_s: float) -> str | None:
        """Waits for a value that another process leaves; None if none has at the limit."""
        answer = self._request({"kind": "get", "key": key, "limit_s": limit_s}, limit_s, "the rendezvous service")
        return None if answer["value"] is None else str(answer["value"])

    def _request(self, request: dict[str, Any], limit_s: float, for_whom: str) -> Any:
        connection = self._connect(limit_s + _ANSWER_MARGIN_S)
        try:
            return self._converse(connection, request)
        except TimeoutError as error:
            raise TimeLimitError(
                describe_problem(
                    f"{self.process} waited in vain for {for_whom}",
                    received=f"no answer from the rendezvous at {self.address} for {limit_s:g} seconds",
                    expected="an answer within that time",
                    fix="Look at the logs of the other tasks.",
                )
            ) from error
        except (OSError, EOFError, HandshakeError) as error:
            raise self._lost(error) from error
        finally:
            connection.close()

    def _converse(self, connection: Connection, request: dict[str, Any]) -> Any:
        try:
            connection.initiate(self._secret)
            connection.send_json(_MESSAGE, request)
            return connection.receive_json(_MESSAGE)
        except HandshakeError as error:
            raise self._lost(error) from error

    def _connect(self, limit_s: float) -> Connection:
        host, port = split_address(self.address)
        try:
            connected = socket.create_connection((host, port), timeout=_CONNECT_LIMIT_S)
        except OSError as error:
            raise self._lost(error) from error
        return Connection(connected, self._purpose, time.monotonic() + limit_s)

    def _lost(self, error: Exception) -> PeerLostError:
        return PeerLostError(
            describe_problem(
                f"{self.process} cannot reach the rendezvous service of its job",
                received=f"{type(error).__name__}: {error} (from {self.address})",
                expected="the launcher that started this process, or that of the first node, to answer there",
                fix="Look whether the launcher still runs; on several nodes, whether that address can be reached.",
            )
        )
