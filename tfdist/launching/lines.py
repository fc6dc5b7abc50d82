"""Cutting a task's output into lines. Pure."""

from __future__ import annotations

_MAX_LINE_BYTES = 16 * 2**20
_REWRITE_INTERVAL_S = 10.0


class LineSplitter:
    """Takes one stream's bytes as they come and gives whole lines, without their ends.

    A carriage return starts a line over, as on a terminal: only its last state is shown when it ends. A progress bar
    that never ends its line is shown every 10 seconds. A line of more than 16 MiB is cut.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        self._shown_at: float | None = None

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """Takes bytes that arrived.

        Args:
            data: The bytes.
            now: The time, in seconds on any clock.

        Returns:
            The lines that are now complete.
        """
        *complete, rest = data.split(b"\n")
        lines = []
        for part in complete:
            self._pending += part
            lines.append(_last_state(bytes(self._pending)))
            self._pending.clear()
        self._pending += rest
        if len(self._pending) > _MAX_LINE_BYTES:
            lines.append(self._take())
        elif b"\r" in rest and (progress := self._rewritten(now)) is not None:
            lines.append(progress)
        return lines

    def finish(self) -> list[bytes]:
        """The unfinished last line, if there is one: the stream has ended."""
        return [self._take()] if self._pending else []

    def _rewritten(self, now: float) -> bytes | None:
        """Forgets the states of a progress bar that are past; returns the last one if it is time to show it."""
        states = bytes(self._pending).split(b"\r")
        # After the last carriage return a new state begins; one that ends with it is complete, and may be the last.
        complete = [state for state in states[:-1] if state]
        del self._pending[:]
        self._pending += (complete[-1] + b"\r" if complete and not states[-1] else b"") + states[-1]
        if not complete:
            return None
        if self._shown_at is None:
            self._shown_at = now
        if now - self._shown_at < _REWRITE_INTERVAL_S:
            return None
        self._shown_at = now
        return complete[-1]

    def _take(self) -> bytes:
        line = _last_state(bytes(self._pending))
        self._pending.clear()
        return line


def _last_state(line: bytes) -> bytes:
    return next((state for state in reversed(line.split(b"\r")) if state), b"")
