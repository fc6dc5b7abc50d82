"""What the launcher tells the tasks of the job: who was lost, who hangs, who is started again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tfdist.cluster.job_environment import parse_job_environment
from tfdist.cluster.job_events import LAUNCHER_EVENTS_NAME, JobEvent, parse_event

__all__ = ["LauncherEvents"]


class LauncherEvents:
    """Reads the events of the launcher that started this process, those of attempts before this one, too, each once.

    Args:
        env: The environment in which the launcher has named itself.
    """

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        job = parse_job_environment(env)
        self._path = None if job is None else Path(job.report_dir) / LAUNCHER_EVENTS_NAME
        self._offset, self._began = 0, 0.0

    def take(self) -> list[JobEvent]:
        """The events since the last call."""
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._offset += len(whole + newline)
        events = [parse_event(line) for line in whole.decode(errors="replace").splitlines()]
        known = [event for event in events if event is not None]
        if known and not self._began:
            self._began = known[0].unix_time
        return known

    def state(self) -> dict[str, float]:
        """How far it has read, for a checkpoint."""
        return {"began": self._began, "offset": self._offset}

    def take_after(self, state: Mapping[str, float]) -> list[JobEvent]:
        """The events after those that `state` tells of; all of them, if it tells of another launcher."""
        found = self.take()
        if found and found[0].unix_time == state.get("began"):
            self._offset = int(state["offset"])
            return self.take()
        return found
