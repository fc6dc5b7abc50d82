"""What one running task writes: to the console, to its log file, and the last lines to remember."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections import deque
from pathlib import Path
from typing import IO

from tfdist.cluster.job_reports import file_stem
from tfdist.launching.console import STDERR, STDOUT, Console
from tfdist.launching.lines import LineSplitter
from tfdist.launching.process import TaskProcess

_READ_BYTES = 2**16
_KEPT_LINES = 40
_KEPT_LINE_CHARACTERS = 500


class TaskOutput:
    """Both streams of one task.

    Args:
        name: The task in words.
        process: The task, its two streams being pipes.
        console: Where its lines go.
        log_dir: Where its log file goes, which gets the bytes of both streams as they are; None for no file.
        selector: The executor's, with which the pipes are registered.
        goes_on: Whether the log file is one of an earlier attempt, after which this one's output comes.
    """

    def __init__(
        self,
        name: str,
        process: TaskProcess,
        console: Console,
        log_dir: Path | None,
        selector: selectors.BaseSelector,
        *,
        goes_on: bool = False,
    ):
        self._name, self._console, self._selector = name, console, selector
        self._log: IO[bytes] | None = (
            (log_dir / f"{file_stem(name)}.log").open("ab" if goes_on else "wb") if log_dir else None
        )
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._open: dict[int, tuple[IO[bytes], LineSplitter]] = {}
        for descriptor, pipe in ((STDOUT, process.stdout), (STDERR, process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open[descriptor] = (pipe, LineSplitter())
            selector.register(pipe, selectors.EVENT_READ, (self, descriptor))

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines of standard error."""
        return tuple(self._last_lines)

    def read(self, descriptor: int) -> None:
        """Passes on what can be read from a stream now."""
        pipe, splitter = self._open[descriptor]
        try:
            data = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._write_log(data)
            self._pass_on(descriptor, splitter.feed(data, time.monotonic()))
        else:
            self._close(descriptor)

    def close(self) -> None:
        """Passes on unfinished last lines and closes everything."""
        for descriptor in tuple(self._open):
            self._close(descriptor)
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()

    def _close(self, descriptor: int) -> None:
        pipe, splitter = self._open.pop(descriptor)
        self._selector.unregister(pipe)
        pipe.close()
        self._pass_on(descriptor, splitter.finish())

    def _pass_on(self, descriptor: int, lines: list[bytes]) -> None:
        for line in lines:
            self._console.write_task_line(descriptor, self._name, line)
            if descriptor == STDERR:
                self._last_lines.append(line.decode(errors="backslashreplace")[:_KEPT_LINE_CHARACTERS])

    def _write_log(self, data: bytes) -> None:
        if self._log is None:
            return
        try:
            self._log.write(data)
            self._log.flush()
        except OSError as error:
            self._console.write_note(f"the log file of {self._name} cannot be written and ends here: {error}")
            self._log = None
