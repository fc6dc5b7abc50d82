"""The event log of a job: the launcher writes its own events, and those that tasks leave for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from tfdist.cluster.job_events import (
    LAUNCHER_EVENTS_NAME,
    LOG_NAME,
    JobEvent,
    event_to_line,
    parse_event,
    task_events_name,
)
from tfdist.launching.console import Console

__all__ = ["EventLog"]


class EventLog:
    """Appends to `events.jsonl` of a directory. A disk that is full ends the log, not the job.

    Args:
        directory: Of the log; None for no log.
        console: Where to say that it cannot be written.
        report_directory: Where the launcher's own events are left for the tasks, too.
        earlier: What tasks are told of the attempts before this one.

    Attributes:
        told: The launcher's own events, of this attempt and those before.
    """

    def __init__(
        self, directory: Path | None, console: Console, report_directory: Path, earlier: Sequence[JobEvent] = ()
    ) -> None:
        self._console = console
        self._file: IO[str] | None = None
        self._offsets: dict[Path, int] = {}
        self._for_tasks = report_directory / LAUNCHER_EVENTS_NAME
        self.told: list[JobEvent] = []
        for event in earlier:
            self._tell(event)
        if directory is not None:
            try:
                self._file = (directory / LOG_NAME).open("a", encoding="utf-8")
            except OSError as error:
                self._give_up(error)

    def write(self, event: str, **fields: Any) -> None:
        """Writes an event of now."""
        written = JobEvent(event, time.time(), fields)
        self._append(written)
        self._tell(written)

    def take_from_tasks(self, report_directory: Path, tasks: Iterable[str]) -> None:
        """Takes over what tasks have left since the last call."""
        if self._file is None:
            return
        for task in tasks:
            path = report_directory / task_events_name(task)
            try:
                with path.open(encoding="utf-8") as file:
                    file.seek(self._offsets.get(path, 0))
                    text = file.read()
            except OSError:
                continue
            whole, newline, _ = text.rpartition("\n")
            self._offsets[path] = self._offsets.get(path, 0) + len((whole + newline).encode())
            for line in whole.splitlines():
                event = parse_event(line)
                if event is not None:
                    self._append(event)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _tell(self, event: JobEvent) -> None:
        self.told.append(event)
        with contextlib.suppress(OSError), self._for_tasks.open("a", encoding="utf-8") as file:
            file.write(event_to_line(event))

    def _append(self, event: JobEvent) -> None:
        if self._file is None:
            return
        try:
            self._file.write(event_to_line(event))
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._console.write_note(f"the event log cannot be written and ends here: {error}")
        self._file = None
