"""The error tree, and the one shape in which tfdist words a problem.

Pure: standard library only. Every error that a user can meet is a `TfdistError`; an error about an argument or a
setting is also a `ValueError`. A message says what is wrong in the user's terms, what was received and from where,
what was expected, and one thing to do.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "ClusterConfigError",
    "LaunchError",
    "ServerStartError",
    "PeerLostError",
    "TfdistError",
    "TimeLimitError",
    "UnsupportedError",
    "describe_problem",
]


class TfdistError(Exception):
    """Base of every error that tfdist raises on purpose."""


class ArgumentError(TfdistError, ValueError):
    """An argument, flag or setting that cannot be used as it is."""


class ClusterConfigError(ArgumentError):
    """A cluster description (TF_CONFIG or an explicit argument) with one or more problems, all listed at once."""


class LaunchError(TfdistError, RuntimeError):
    """A job on this machine for which the system refuses a port, a process or a file."""


class ServerStartError(TfdistError, RuntimeError):
    """A TensorFlow server of a parameter-server cluster that cannot start, as when its port is taken."""


class CheckpointError(TfdistError, RuntimeError):
    """Checkpoints that cannot be read, or that do not fit what they are to be restored into."""


class UnsupportedError(TfdistError, NotImplementedError):
    """Something that tfdist cannot do exactly, and therefore does not do."""


class PeerLostError(TfdistError, ConnectionError):
    """Another process of the job is gone, so that this one cannot go on training. The message names it."""


class TimeLimitError(TfdistError, TimeoutError):
    """A wait that ended at its limit. The message names the setting, its value and who was missing."""


def describe_problem(what: str, *, received: str, expected: str, fix: str) -> str:
    """Words a problem in tfdist's one shape.

    Args:
        what: What is wrong, in the user's terms, without a full stop.
        received: `name=value (from where)`.
        expected: The rule that was broken.
        fix: One action that mends it.

    Returns:
        The four parts, a line each.

    Example:
        >>> text = describe_problem("It is late", received="hour=26", expected="0 to 23", fix="Set the clock.")
        >>> print(text)
        It is late.
          Received: hour=26
          Expected: 0 to 23
          Fix: Set the clock.
    """
    return f"{what}.\n  Received: {received}\n  Expected: {expected}\n  Fix: {fix}"
