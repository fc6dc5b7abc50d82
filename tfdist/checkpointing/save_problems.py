"""Why a checkpoint could not be written, sorted into kinds, each with what to do about it."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from tfdist.errors import TimeLimitError, describe_problem

__all__ = ["SaveProblem", "describe_failure", "kind_of_failure"]

_KIND_OF_ERRNO = {
    errno.ENOSPC: "full disk",
    errno.EDQUOT: "full disk",
    errno.EFBIG: "full disk",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "no permission",
    errno.ENOENT: "vanished directory",
    errno.ENOTDIR: "vanished directory",
    errno.ESTALE: "vanished directory",
    errno.ENODEV: "vanished directory",
    errno.ENOTCONN: "vanished directory",
    errno.EHOSTDOWN: "vanished directory",
}
_RULE_AND_FIX = {
    "full disk": ("room for one checkpoint more than are kept", "Free space, or keep fewer checkpoints."),
    "no permission": ("a directory that this process may write to", "Grant it, or name another directory."),
    "vanished directory": (
        "the directory that was there when training began",
        "Mount it again, or make it anew: tfdist does not, because it could come to lie on another disk.",
    ),
    "missing part": (
        "every task to write its own part, into the same directory, within the time limit",
        "Look at that task's log; use a directory that all tasks see, or allow more time.",
    ),
    "stalled": ("the save before to come to its end", "Look at the disk or the network of the directory."),
    "record": ("JSON values: strings, numbers, lists, dictionaries by string", "Mend the state that is named."),
    "other": ("a checkpoint to be written", "Mend what the error says."),
}


@dataclass(frozen=True)
class SaveProblem:
    """A kind of failure that kept checkpoints from being written, though training goes on.

    Attributes:
        kind: One of `full disk`, `no permission`, `vanished directory`, `missing part`, `stalled`, `record`, `other`.
        step: The first step at which it was met.
        message: What it was then, as it was logged.
        count: How many saves it has kept from being complete.
    """

    kind: str
    step: int
    message: str
    count: int


class StalledError(TimeLimitError):
    """A save that has to wait too long for the one before it."""


class FailedPartError(RuntimeError):
    """Another task says that its part of a checkpoint could not be written."""


class RecordError(TypeError):
    """A record that is no JSON."""


def kind_of_failure(error: BaseException) -> str:
    """Sorts an error of a save into its kind."""
    if isinstance(error, StalledError):
        return "stalled"
    if isinstance(error, (TimeLimitError, FailedPartError)):
        return "missing part"
    if isinstance(error, RecordError):
        return "record"
    if isinstance(error, OSError) and error.errno is not None:
        return _KIND_OF_ERRNO.get(error.errno, "other")
    return "other"


def describe_failure(error: BaseException, *, directory: str, step: int) -> str:
    """Words the failure of a save: what failed, where, and what to do."""
    expected, fix = _RULE_AND_FIX[kind_of_failure(error)]
    return describe_problem(
        f"The checkpoint of step {step} could not be written; training goes on, and the next save tries again",
        received=f"{type(error).__name__}: {error} (directory={directory})",
        expected=expected,
        fix=fix,
    )
