"""What this process does now and has done, kept where the launcher reads it, if there is one.

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

__all__ = [
    "count_steps",
    "in_phase",
    "leave_signal_to_program",
    "mark_time",
    "note_batch_ready",
    "seconds_by_phase",
    "start_heartbeat",
]

_NUMBERS = {phase: number for number, phase in enumerate(PHASES)}
_TRACE, _INPUT, _STEP = (_NUMBERS[phase] for phase in ("trace", "input", "step"))


class _Clock:
    """How long the process has been in each phase. Once it has a record, the launcher can read it."""

    def __init__(self) -> None:
        self.record: mmap.mmap | None = None
        self.seconds = [0.0] * len(PHASES)
        self.step = 0
        self.phase = 0
        self._num_beats = 0
        self._since = time.monotonic()
        self._last = (self.phase, 0.0)

    def enter(self, phase: int) -> int:
        """Begins a phase; returns the one before."""
        before, now = self.phase, time.monotonic()
        self._last = (before, now - self._since)
        self.seconds[before] += now - self._since
        self.phase, self._since = phase, now
        self._num_beats += 1
        if self.record is not None:
            pack_heartbeat(self.record, self._num_beats, self.step, phase, now, seconds=self.seconds)
        return before

    def move_to_input(self, left_s: float) -> None:
        """Of the interval of `step` that has just ended, all but the last `left_s` seconds was input."""
        phase, lasted_s = self._last
        moved_s = lasted_s - left_s if phase == _STEP else 0.0
        if moved_s > 0:
            self.seconds[_STEP] -= moved_s
            self.seconds[_INPUT] += moved_s
        self._last = (phase, 0.0)


_clock = _Clock()


def start_heartbeat() -> None:
    """Begins to tell the launcher what this process does, and lets it ask for its stacks. Once is enough.

    The launcher asks with SIGUSR2, unless the program has a handler of its own.
    """
    job = parse_job_environment(os.environ)
    if job is None or _clock.record is not None:
        return
    directory = Path(job.report_dir)
    try:
        with open(directory / heartbeat_file_name(job.task_name), "w+b") as file:
            file.truncate(RECORD_BYTES)
            _clock.record = mmap.mmap(file.fileno(), RECORD_BYTES)
        _clock.enter(_clock.phase)
        if signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL:
            stacks = open(directory / stacks_file_name(job.task_name), "w")  # noqa: SIM115 - open as long as the process
            faulthandler.register(signal.SIGUSR2, stacks, all_threads=True)
    except OSError:
        pass  # training matters more than what is told of it


def leave_signal_to_program() -> None:
    """Lets the launcher not ask for stacks any more, if the program has set a handler of its own since the start."""
    job = parse_job_environment(os.environ) if _clock.record is not None else None
    if job is not None and signal.getsignal(signal.SIGUSR2) != signal.SIG_DFL:
        with contextlib.suppress(OSError):
            (Path(job.report_dir) / stacks_file_name(job.task_name)).unlink(missing_ok=True)


def count_steps(count: int) -> None:
    """Takes note of steps of training that were made."""
    _clock.step += count


def seconds_by_phase() -> dict[str, float]:
    """How long this process has been in each phase, finished intervals only."""
    return dict(zip(PHASES, _clock.seconds, strict=True))


def mark_time() -> None:
    """Counts the present phase up to now; it goes on."""
    _clock.enter(_clock.phase)


def note_batch_ready(unix_time: float) -> None:
    """Tells, when an exchange begins, since when the step's batch was there, where its graph has waited for it.

    Args:
        unix_time: As `tf.timestamp` gives it.
    """
    _clock.move_to_input(time.time() - unix_time)


class in_phase:  # noqa: N801 - used as a function
    """The block is a phase; afterwards the one before goes on.

    The input of a first call counts as `trace`: filling a shuffle buffer may take as long as a graph.
    """

    __slots__ = ("_before", "_phase")

    def __init__(self, phase: str) -> None:
        self._phase = _NUMBERS[phase]
        self._before: int | None = None

    def __enter__(self) -> None:
        if not (self._phase == _INPUT and _clock.phase == _TRACE):
            self._before = _clock.enter(self._phase)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _clock.enter(self._before)
