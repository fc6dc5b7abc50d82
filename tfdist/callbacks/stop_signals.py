"""Signals that ask a training to save and end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from tfdist.errors import ArgumentError, describe_problem

__all__ = ["StopSignals"]


class StopSignals:
    """Takes note of signals while it listens, instead of what they would do.

    Attributes:
        received: The number of the first signal that came; 0 for none.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Takes the names of signals, such as `SIGTERM`.

        Raises:
            ArgumentError: This system has no signal of such a name.
        """
        for name in names:
            if not isinstance(name, str) or not hasattr(signal, name):
                raise ArgumentError(
                    describe_problem(
                        "There is no such signal",
                        received=f"signals={tuple(names)!r} (from the argument), of which {name!r}",
                        expected="names of signals of this system",
                        fix="Pass names such as SIGTERM and SIGUSR1.",
                    )
                )
        self._numbers = [int(getattr(signal, name)) for name in names]
        self.received = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listens within the block. Does nothing in a thread that is not the main one, which gets no signals."""
        self.received = 0
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, self._note) for number in self._numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = self.received or number
