"""What a job's state machine is told (events) and what it answers (decisions). Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskExited:
    """A task ended; a negative `returncode` is the signal that killed it."""

    task: str
    returncode: int
    now: float


@dataclass(frozen=True)
class PhaseReported:
    """A task reported its phase, and whether it has ever waited for its peers."""

    task: str
    phase: str
    has_waited: bool
    now: float


@dataclass(frozen=True)
class SignalReceived:
    """Somebody asked the launcher to end."""

    number: signal.Signals
    now: float


@dataclass(frozen=True)
class ClockTicked:
    """Time has passed."""

    now: float


Event = TaskExited | PhaseReported | SignalReceived | ClockTicked


@dataclass(frozen=True)
class Ask:
    """Ask these tasks to end (SIGTERM)."""

    tasks: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Kill:
    """Kill these tasks (SIGKILL)."""

    tasks: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Lose:
    """Go on without this task."""

    task: str
    reason: str


@dataclass(frozen=True)
class Start:
    """Start this task again."""

    task: str
    reason: str


@dataclass(frozen=True)
class Finish:
    """All tasks have ended: end the launcher with this status."""

    status: int
    reason: str


Decision = Ask | Kill | Lose | Start | Finish


def exit_status(returncode: int) -> int:
    """The status that a shell would show: 128 + signal for a task that a signal killed."""
    return 128 - returncode if returncode < 0 else returncode


def describe_exit(task: str, returncode: int) -> str:
    """How a task ended, in words."""
    if returncode >= 0:
        return f"{task} ended with status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = "an unnamed signal"
    return f"{task} was killed by {name} (signal {-returncode})"
