"""The launcher's own standard output and error, shared by all tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_COLOURS = (36, 33, 35, 32, 34, 31)  # ANSI: cyan, yellow, magenta, green, blue, red
STDOUT, STDERR = 1, 2


class Console:
    """Writes whole lines, each with the name of the task that it is from; in colour on a terminal."""

    def __init__(self, task_names: Sequence[str]):
        colour_of = {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(task_names)}
        self._prefixes = {
            (descriptor, name): f"\x1b[{colour}m[{name}]\x1b[0m " if os.isatty(descriptor) else f"[{name}] "
            for name, colour in colour_of.items()
            for descriptor in (STDOUT, STDERR)
        }
        self._closed: set[int] = set()
        sys.stdout.flush()
        sys.stderr.flush()

    def write_task_line(self, descriptor: int, task: str, line: bytes) -> None:
        """Writes one line of a task, whatever bytes it holds."""
        self._write(descriptor, self._prefixes[descriptor, task].encode() + line + b"\n")

    def write_note(self, text: str) -> None:
        """Writes what the launcher itself has to say, to standard error."""
        self._write(STDERR, f"[tfdist] {text}\n".encode(errors="backslashreplace"))

    def _write(self, descriptor: int, data: bytes) -> None:
        """Writes all of it. If nobody reads any more (`tfdist run ... | head`), the job goes on unseen."""
        view = memoryview(data)
        while view and descriptor not in self._closed:
            try:
                view = view[os.write(descriptor, view) :]
            except OSError:
                self._closed.add(descriptor)
