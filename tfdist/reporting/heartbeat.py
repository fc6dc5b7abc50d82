"""This process's heartbeat, kept where the launcher reads it. Without a launcher it costs a few comparisons.

A phase lasts until the next begins. Of two threads that change it, the second one waits for the first: the one that
exchanges runs while the one that trains waits for it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import time
from pathlib import Path

from tfdist.cluster.heartbeats import PHASES, RECORD_BYTES, heartbeat_file_name, pack_heartbeat
from tfdist.cluster.job_environment import parse_job_environment
from tfdist.cluster.job_reports import stacks_file_name

__all__ = ["count_steps", "in_phase", "leave_signal_to_program", "start_heartbeat"]

_NUMBERS = {phase: number for number, phase in enumerate(PHASES)}
_TRACE, _INPUT = _NUMBERS["trace"], _NUMBERS["input"]


class _Heart:
    def __init__(self, record: mmap.mmap) -> None:
        self._record = record
        self._num_beats = 0
        self._since = time.monotonic()
        self._seconds = [0.0] * len(PHASES)
        self.step = 0
        self.phase = 0
        self.enter(0)

    def enter(self, phase: int) -> int:
        """Begins a phase; returns the one before."""
        before, now = self.phase, time.monotonic()
        self._seconds[before] += now - self._since
        self.phase, self._since = phase, now
        self._num_beats += 1
        pack_heartbeat(self._record, self._num_beats, self.step, phase, now, seconds=self._seconds)
        return before


_heart: _Heart | None = None


def start_heartbeat() -> None:
    """Begins to tell the launcher what this process does, and lets it ask for its stacks. Once is enough.

    The launcher asks with SIGUSR2, unless the program has a handler of its own.
    """
    global _heart  # noqa: PLW0603 - of the process
    job = parse_job_environment(os.environ)
    if job is None or _heart is not None:
        return
    directory = Path(job.report_dir)
    try:
        with open(directory / heartbeat_file_name(job.task_name), "w+b") as file:
            file.truncate(RECORD_BYTES)
            _heart = _Heart(mmap.mmap(file.fileno(), RECORD_BYTES))
        if signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL:
            stacks = open(directory / stacks_file_name(job.task_name), "w")  # noqa: SIM115 - open as long as the process
            faulthandler.register(signal.SIGUSR2, stacks, all_threads=True)
    except OSError:
        pass  # training matters more than what is told of it


def leave_signal_to_program() -> None:
    """Lets the launcher not ask for stacks any more, if the program has set a handler of its own since the start."""
    job = parse_job_environment(os.environ) if _heart is not None else None
    if job is not None and signal.getsignal(signal.SIGUSR2) != signal.SIG_DFL:
        with contextlib.suppress(OSError):
            (Path(job.report_dir) / stacks_file_name(job.task_name)).unlink(missing_ok=True)


def count_steps(count: int) -> None:
    """Takes note of steps of training that were made."""
    if _heart is not None:
        _heart.step += count


class in_phase:  # noqa: N801 - used as a function
    """The block is a phase; afterwards the one before goes on.

    The input of a first call counts as `trace`: filling a shuffle buffer may take as long as a graph.
    """

    __slots__ = ("_before", "_phase")

    def __init__(self, phase: str) -> None:
        self._phase = _NUMBERS[phase]
        self._before: int | None = None

    def __enter__(self) -> None:
        if _heart is not None and not (self._phase == _INPUT and _heart.phase == _TRACE):
            self._before = _heart.enter(self._phase)

    def __exit__(self, *_: object) -> None:
        if _heart is not None and self._before is not None:
            _heart.enter(self._before)
