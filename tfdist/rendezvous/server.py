"""The service at which the processes of an elastic job meet. The launcher hosts it.

Every request is a connection of its own: authenticated both ways with the job's secret, one message of JSON, one
answer. The connection by which a process *entered* stays open as long as the process lives: the kernel closes it when
the process ends, however it ends, and breaks it when the process's machine gives no answer any more.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from tfdist.messaging.connection import Connection, HandshakeError
from tfdist.messaging.liveness import watch_connection
from tfdist.rendezvous.membership import Asked, Membership, Round, Rules, decide

__all__ = ["RendezvousServer", "purpose_of"]

_HANDSHAKE_LIMIT_S = 10.0
_TICK_S = 0.5
_MESSAGE = b"M"
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError)


def purpose_of(job: str) -> str:
    """What both sides of a connection to the rendezvous of a job say that it is for."""
    return f"tfdist rendezvous {job}".strip()


class RendezvousServer:
    """Serves from when it is made until `close`.

    Attributes:
        address: `host:port` at which it listens.
    """

    def __init__(
        self,
        rules: Rules,
        secret: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        job: str = "",
        network_limit_s: float | None = None,
        on_round: Callable[[Round], None] = lambda _: None,
    ) -> None:
        """Opens the port.

        Args:
            rules: The numbers of the job.
            secret: The job's secret.
            host: The interface to listen on.
            port: The port; 0 lets the system choose.
            job: The job's name. Processes of another one are turned away.
            network_limit_s: How long the machine of a process may give no answer before the process counts as gone, in
                seconds; None for as long as the system allows.
            on_round: Called with every round that is formed, from a thread of the server's.

        Raises:
            OSError: The system gives no port.
        """
        self._state = Membership(rules)
        self._secret = secret.encode()
        self._purpose = purpose_of(job)
        self._on_round = on_round
        self._network_limit_s = network_limit_s
        self._changed = threading.Condition()
        self._values: dict[str, str] = {}
        self._rounds: dict[str, Round] = {}  # by process, until it has been told
        self._put_out: dict[str, str] = {}
        self._failure = ""
        self._is_closed = False
        self._open: set[socket.socket] = set()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=1024)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._listening.getsockname()[1]}"
        for action in (self._accept, self._watch_the_time):
            threading.Thread(target=action, name="tfdist-rendezvous", daemon=True).start()

    @property
    def members(self) -> tuple[str, ...]:
        """The members of the present round."""
        with self._changed:
            return self._state.members

    def close(self) -> None:
        """Ends the service, and every wait of a process at it."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            connections = list(self._open)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        for connected in connections:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connected,), name="tfdist-rendezvous", daemon=True).start()

    def _watch_the_time(self) -> None:
        with self._changed:
            while not self._is_closed:
                self._decide()
                self._changed.wait(_TICK_S)

    def _decide(self) -> None:
        """Lets the rule decide. The lock is held."""
        if self._failure:
            return
        self._state, verdict = decide(self._state, time.monotonic())
        self._put_out |= verdict.put_out
        self._failure = verdict.failure
        if verdict.round is not None:
            self._rounds |= dict.fromkeys(verdict.round.members, verdict.round)
            self._on_round(verdict.round)
        if verdict.round is not None or verdict.put_out or verdict.failure:
            self._changed.notify_all()

    def _answer(self, connected: socket.socket) -> None:
        with self._changed:
            self._open.add(connected)
        try:
            if self._network_limit_s is not None:
                watch_connection(connected, self._network_limit_s)
            connection = Connection(connected, self._purpose, time.monotonic() + _HANDSHAKE_LIMIT_S)
            connection.accept(self._secret)
            request = connection.receive_json(_MESSAGE)
            connection.end = math.inf
            getattr(self, f"_on_{request['kind']}")(connection, request)
        except (OSError, EOFError, HandshakeError, *_MALFORMED):
            pass  # a stranger, or a process that is gone: the one that asks sees its connection close
        finally:
            with self._changed:
                self._open.discard(connected)
            connected.close()

    def _on_enter(self, connection: Connection, request: dict[str, Any]) -> None:
        process = str(request["process"])
        with self._changed:
            is_first = not self._state.members
            self._state = self._state.enter(process)
            self._decide()
        try:
            connection.send_json(_MESSAGE, {"is_newcomer": not is_first})
            with contextlib.suppress(EOFError):
                connection.receive()  # nothing comes: it closes when the process ends
        finally:
            with self._changed:
                self._state = self._state.leave(process)
                self._decide()
                self._changed.notify_all()

    def _on_ask(self, connection: Connection, request: dict[str, Any]) -> None:
        process = str(request["process"])
        asked = Asked(
            str(request["address"]),
            tuple(int(number) for number in request["position"]),
            bool(request["at_boundary"]),
            time.monotonic(),
        )
        with self._changed:
            self._state = self._state.ask(process, asked)
            self._decide()
            self._changed.wait_for(
                lambda: process in self._rounds or process in self._put_out or self._failure or self._is_closed
            )
            formed = self._rounds.pop(process, None)
            problem = self._put_out.get(process) or self._failure or "the job ends"
        if formed is None:
            connection.send_json(_MESSAGE, {"problem": problem})
            return
        answer = {
            "number": formed.number,
            "members": list(formed.members),
            "addresses": [formed.asked[name].address for name in formed.members],
            "positions": [list(formed.asked[name].position) for name in formed.members],
        }
        connection.send_json(_MESSAGE, answer)

    def _on_newcomers(self, connection: Connection, request: dict[str, Any]) -> None:  # noqa: ARG002
        with self._changed:
            room = self._state.rules.most - len(self._state.members)
            count = min(len(self._state.newcomers), max(room, 0))
        connection.send_json(_MESSAGE, {"count": count})

    def _on_set(self, connection: Connection, request: dict[str, Any]) -> None:
        with self._changed:
            self._values[str(request["key"])] = str(request["value"])
            self._changed.notify_all()
        connection.send_json(_MESSAGE, {})

    def _on_get(self, connection: Connection, request: dict[str, Any]) -> None:
        key, limit_s = str(request["key"]), float(request["limit_s"])
        with self._changed:
            self._changed.wait_for(lambda: key in self._values or self._is_closed, timeout=limit_s)
            value = self._values.get(key)
        connection.send_json(_MESSAGE, {"value": value})
