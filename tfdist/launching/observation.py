"""What the launcher can see of a task's process: its heartbeat, its state, its stacks."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from tfdist.cluster.heartbeats import Heartbeat, heartbeat_file_name, parse_heartbeat
from tfdist.cluster.job_reports import stacks_file_name
from tfdist.launching.hangs import Seen

__all__ = ["ask_for_stacks", "observe", "read_heartbeat"]

_STACKS_LIMIT_S = 2.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_heartbeat(directory: Path, task: str) -> Heartbeat | None:
    """The heartbeat of a task, if it has one."""
    try:
        return parse_heartbeat((directory / heartbeat_file_name(task)).read_bytes())
    except OSError:
        return None


def observe(directory: Path, task: str, pid: int) -> Seen:
    """What is seen of a task now."""
    state, processor_s = "", 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        state, processor_s = fields[0], (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return Seen(read_heartbeat(directory, task), state, processor_s)


def ask_for_stacks(directory: Path, pids: dict[str, int]) -> dict[str, str]:
    """Asks tasks for their stacks and waits a moment.

    Args:
        directory: The job's report directory.
        pids: The tasks' processes.

    Returns:
        The dump of `faulthandler` of each task, empty where it gave none.
    """
    before = {task: _size(directory, task) for task in pids}
    for task, pid in pids.items():
        if before[task] is not None:  # without its file it does not listen, and the signal would kill it
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGUSR2)
    until = time.monotonic() + _STACKS_LIMIT_S
    while time.monotonic() < until and any(_size(directory, task) == size for task, size in before.items()):
        time.sleep(0.05)
    time.sleep(0.1)  # a dump is written frame by frame
    found = {}
    for task, size in before.items():
        text = ""
        with contextlib.suppress(OSError):
            text = (directory / stacks_file_name(task)).read_text(errors="replace")[size or 0 :]
        found[task] = text
    return found


def _size(directory: Path, task: str) -> int | None:
    try:
        return (directory / stacks_file_name(task)).stat().st_size
    except OSError:
        return None
