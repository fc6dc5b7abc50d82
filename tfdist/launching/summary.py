"""The last words of a job that failed: which task failed first, why, and what became of the others. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from tfdist.cluster.job_reports import FailureReport
from tfdist.launching.decisions import describe_exit, exit_status

#: Signals that strike a process from outside or by its own fault, never because a peer has failed (SIGABRT may).
_PRIMARY_SIGNALS = frozenset({signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
#: How much later than its death the launcher may notice the end of a task on a busy machine.
_NOTICE_DELAY_S = 1.0


@dataclass(frozen=True)
class TaskEnd:
    """How one task ended.

    Attributes:
        name: The task in words.
        returncode: Its exit status (negative: the signal that killed it).
        was_asked: Whether the launcher had asked it to end, or killed it.
        unix_time: When the launcher noticed, in seconds.
        report: Its failure report, if it left one.
        last_lines: The last lines that it wrote to standard error.
    """

    name: str
    returncode: int
    was_asked: bool
    unix_time: float
    report: FailureReport | None = None
    last_lines: Sequence[str] = ()

    @property
    def has_failed(self) -> bool:
        """Whether it failed by itself: what the launcher did to it is no failure of its own."""
        return self.returncode != 0 and (not self.was_asked or self.report is not None)


def find_root_cause(ends: Sequence[TaskEnd]) -> TaskEnd | None:
    """The earliest failure: by its report's time if it left one, else by its end.

    A task that a signal has killed leaves no report, and the launcher may notice its end only after the others have
    reported theirs, which followed from it: so its end counts as up to a second earlier.
    """
    return min((end for end in ends if end.has_failed), key=_failure_time, default=None)


def _failure_time(end: TaskEnd) -> float:
    if end.report is not None:
        return end.report.unix_time
    if -end.returncode in _PRIMARY_SIGNALS:
        return end.unix_time - _NOTICE_DELAY_S
    return end.unix_time


def summarize_failure(root: TaskEnd, ends: Sequence[TaskEnd]) -> tuple[int, str]:
    """Words a failure.

    Args:
        root: The task that failed first.
        ends: How every task ended.

    Returns:
        The exit status for the launcher, and the text.
    """
    cause = cause_of(root)
    lines = [describe_exit(root.name, root.returncode) + (f": {cause}" if cause else "")]
    if root.returncode == -signal.SIGKILL:
        lines.append("  The launcher did not do that: look for the system's out-of-memory killer, or for a person.")
    if root.report is not None:
        lines += _indent(root.report.traceback.splitlines())
    elif root.last_lines:
        lines += [f"  The last lines that {root.name} wrote to standard error:", *_indent(root.last_lines)]
    lines += [f"  {_describe_other(end)}" for end in ends if end is not root]
    return exit_status(root.returncode), "\n".join(lines)


def cause_of(end: TaskEnd) -> str:
    """Its error in one line, from its report or else from what it wrote; empty where neither tells."""
    if end.report is not None:
        first_line = end.report.message.strip().partition("\n")[0]
        return f"{end.report.error_type}: {first_line}" if first_line else end.report.error_type
    has_traceback = any(line.startswith("Traceback (most recent call last)") for line in end.last_lines)
    errors = [line for line in end.last_lines if line.strip() and not line.startswith((" ", "Traceback"))]
    return errors[-1] if has_traceback and errors else ""


def _describe_other(end: TaskEnd) -> str:
    if end.was_asked and end.report is None:
        return f"{end.name} was asked to end, and did"
    if end.returncode == 0:
        return f"{end.name} ended with status 0"
    cause = end.report.error_type if end.report else cause_of(end).partition(":")[0]
    return f"{end.name} ended afterwards: {cause or describe_exit('it', end.returncode)}"


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"  | {line}" for line in lines]
