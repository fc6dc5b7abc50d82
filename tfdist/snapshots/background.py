"""One thread that writes, with one piece of work at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["BackgroundWriter"]


class BackgroundWriter:
    """A thread that carries out one job at a time. A job must not raise.

    The thread is a daemon: a file system that hangs does not keep the process from ending.
    """

    def __init__(self, name: str):
        self._name = name
        self._changed = threading.Condition()
        self._job: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Starts a job. None may be in flight."""
        with self._changed:
            assert self._job is None
            assert not self._closed
            self._job = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Waits until no job is in flight.

        Returns:
            Whether that came within the limit.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._job is None, timeout_s)

    def close(self) -> None:
        """Lets the thread end after the job that is in flight."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._job is not None or self._closed)
                job = self._job
            if job is None:
                return
            try:
                job()
            finally:
                del job  # and with it the snapshot
                with self._changed:
                    self._job = None
                    self._changed.notify_all()
