"""A connection between two processes: authenticated, with an end that no wait on it outlasts."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import struct
import time
from typing import Any

from tfdist.messaging.handshake import Claims, HandshakeError, Steps, accept, initiate

__all__ = ["Connection", "HandshakeError"]

_FRAME = struct.Struct("!cI")
_LARGEST_FRAME = 1 << 24


class Connection:
    """Frames of a kind (one byte) and a body. Every method raises `OSError` when the connection or the time ends.

    Args:
        connected: The socket.
        purpose: What the connection is for; both sides must say the same.
        end: When every wait ends, by `time.monotonic`; `math.inf` for a connection whose very closing is the message.
    """

    def __init__(self, connected: socket.socket, purpose: str, end: float) -> None:
        self._socket = connected
        # A connection is a group of two. Who they are, they may say in what they send.
        self._initiator = Claims(purpose, 0, 1, 2, "messages", "")
        self._acceptor = Claims(purpose, 1, 0, 2, "messages", "")
        self.end = end
        self._set_limit()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def initiate(self, secret: bytes) -> None:
        """Proves the secret to the side that accepted, and has it proved.

        Raises:
            HandshakeError: The other side is there for another purpose, or has another secret.
        """
        self._run(initiate(self._initiator, secret))

    def accept(self, secret: bytes) -> None:
        """As `initiate`, on the side that accepted."""
        self._run(accept(self._acceptor, secret))

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Sends a frame."""
        self._set_limit()
        self._socket.sendall(_FRAME.pack(kind, len(body)) + body)

    def send_json(self, kind: bytes, value: Any) -> None:
        """Sends a frame with JSON in it."""
        self.send(kind, json.dumps(value).encode())

    def receive(self) -> tuple[bytes, bytes]:
        """Waits for a frame.

        Raises:
            EOFError: The other side has closed.
        """
        kind, size = _FRAME.unpack(self._receive(_FRAME.size))
        if size > _LARGEST_FRAME:
            raise ConnectionError("it sent a frame that is too long")
        return kind, self._receive(size)

    def receive_json(self, kind: bytes) -> Any:
        """Waits for a frame of this kind, with JSON in it."""
        received, body = self.receive()
        if received != kind:
            raise ConnectionError(f"it sent a frame of kind {received!r}, not {kind!r}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ConnectionError("it sent a frame that cannot be read") from error

    def close(self) -> None:
        """Closes it."""
        self._socket.close()

    def _set_limit(self) -> None:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit has come")
        self._socket.settimeout(None if math.isinf(left) else left)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._set_limit()
            received = self._socket.recv(min(size - len(data), 1 << 18))
            if not received:
                raise EOFError("it closed the connection")
            data += received
        return bytes(data)

    def _run(self, steps: Steps) -> None:
        unsent = b""
        try:
            wish = next(steps)
            while True:
                if isinstance(wish, bytes):
                    unsent += wish
                    wish = next(steps)
                    continue
                self._set_limit()
                self._socket.sendall(unsent)
                unsent = b""
                try:
                    received = self._receive(wish)
                except EOFError as error:
                    steps.throw(error)
                    raise
                wish = steps.send(received)
        except (StopIteration, HandshakeError) as end:
            with contextlib.suppress(OSError):
                self._socket.sendall(unsent)  # the verdict, so that the other side knows, too
            if isinstance(end, HandshakeError):
                raise
