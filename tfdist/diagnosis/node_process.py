"""Starts one node's part of the doctor as a process, and ends it at a limit, whatever holds it up."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tfdist.diagnosis.facts import NodeReport, read_report

__all__ = ["NodeOptions", "NodeProcess"]

_KILLED_LIMIT_S = 0.1


@dataclass(frozen=True)
class NodeOptions:
    """What one node's process is told. Times are those of `time.monotonic`.

    Attributes:
        tf_config: The cluster and the task.
        token: Random, unique.
        settle_at: See `session.Times`.
        end_at: The same.
        script: Its path, or None.
        checkpoint_dir: Its path, or None.
        devices: Whether to ask TensorFlow for its devices.
    """

    tf_config: str
    token: str
    settle_at: float
    end_at: float
    script: str | None = None
    checkpoint_dir: str | None = None
    devices: bool = False


class NodeProcess:
    """A running node."""

    def __init__(self, options: NodeOptions, env: Mapping[str, str]) -> None:
        # A session, and so a process group, of its own: what it has started can be ended with it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tfdist.diagnosis", json.dumps(dataclasses.asdict(options))],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def finish(self, end: float) -> tuple[list[NodeReport], str]:
        """Waits for its reports until `end`, by `time.monotonic`, then kills it.

        Returns:
            The reports, its own first; none if there is a problem, which is the second part.
        """
        try:
            stdout, stderr = self._process.communicate(timeout=max(end - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            self.kill()
            return [], "it did not end, and was killed"
        if self._process.returncode == 0:
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                return [read_report(value) for value in json.loads(stdout)], ""
        last = stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        return [], f"it ended with status {self._process.returncode}: {last[0][:300]}"

    def ask_to_end(self) -> None:
        """Lets it remove its file and end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kills it and what it has started. Waits only briefly: a process that the kernel holds up can't be ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=_KILLED_LIMIT_S)
