"""Small messages between two members: who failed, who waits for whom, and what is agreed on while the group forms."""

from __future__ import annotations

import json
import select
import socket
import struct
from typing import Any

__all__ = ["Channel", "Frame"]

Frame = dict[str, Any]

_LENGTH = struct.Struct("!I")
_LARGEST_FRAME = 1 << 16
_READ_BYTES = 1 << 16
_SEND_LIMIT_MS = 1000


class Channel:
    """JSON objects over a non-blocking socket of an authenticated peer.

    It has a socket of its own, so that word of a failure does not wait behind data that nobody reads.

    Attributes:
        socket: The socket.
        is_open: Whether the peer may still send.
        failure: With what the connection ended, where it was not closed.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.is_open = True
        self.failure: OSError | None = None
        self._unread = bytearray()

    def send(self, frame: Frame) -> None:
        """Sends a frame. To a peer that is gone, or does not read for a second, it sends nothing."""
        body = json.dumps(frame).encode()
        unsent = memoryview(_LENGTH.pack(len(body)) + body)
        try:
            while unsent:
                try:
                    unsent = unsent[self.socket.send(unsent) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self.socket, select.POLLOUT)
                    if not poll.poll(_SEND_LIMIT_MS):
                        return
        except OSError:
            return

    def read(self) -> list[Frame]:
        """The frames that have come, without waiting. `is_open` is false when no more can come."""
        while self.is_open:
            try:
                received = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                self.failure, received = error, b""
            self.is_open = bool(received)
            self._unread += received
        frames = []
        while len(self._unread) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._unread)[0]
            if end > _LARGEST_FRAME:
                self.is_open = False  # not a member's frame: the stream is damaged
                break
            if len(self._unread) < end:
                break
            frames.append(json.loads(self._unread[_LENGTH.size : end]))
            del self._unread[:end]
        return frames
