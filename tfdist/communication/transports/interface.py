"""What every transport does for the exchange of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tfdist.errors import ArgumentError, TfdistError, describe_problem

__all__ = ["Array", "TimeLimit", "Transport", "TransportClosedError"]

Array = np.ndarray[Any, np.dtype[Any]]


class TransportClosedError(TfdistError, ConnectionError):
    """A transport that this process has closed, as by `close()` from another thread during an exchange."""


@dataclass(frozen=True)
class TimeLimit:
    """How long to wait for others, and the setting to name in the error when that was too short.

    Attributes:
        seconds: The limit; above 0.
        setting: What the user changes to change it.
    """

    seconds: float
    setting: str

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ArgumentError(
                describe_problem(
                    "A time limit cannot be used",
                    received=f"{self.setting}={self.seconds!r}",
                    expected="a number of seconds above 0",
                    fix="pass a larger number",
                )
            )

    def __str__(self) -> str:
        return f"{self.setting}={self.seconds:g}"


class Transport(Protocol):
    """Exchanges NumPy arrays between the member processes of one group.

    Every member must make the same calls in the same order, from one thread at a time. The results are equal bit for
    bit on all members, and from run to run with the same members: what is summed is summed in the order of the ranks,
    whatever arrives first.

    A failed exchange raises on every member, on each with the name of the member that caused it, and the transport is
    then of no more use: close it and form a group anew.

    Attributes:
        name: The kind of transport, such as `"tcp"`.
        rank: This member's number, from 0.
        num_members: How many members the group has.
        crosses_network: Whether some members do not share a host's memory, so that an exchange is mostly waiting. The
            same on all members.
    """

    name: str
    rank: int

    @property
    def crosses_network(self) -> bool:
        """See above."""
        ...

    @property
    def num_members(self) -> int:
        """See above."""
        ...

    def all_reduce_sum(self, parts: Sequence[Array], *, checksum: int = 0) -> list[Array]:
        """Sums arrays over all members. Collective.

        Args:
            parts: Arrays of one numeric dtype (integers wrap around; float16 and bfloat16 are summed in float32), with
                the same dtype and shapes on all members. They are read only, and only during the call; those which are
                not C-contiguous are copied first.
            checksum: Of what else must be the same on all members, as of the shapes of what is packed in an array.

        Returns:
            The sums, in the shapes given; C-contiguous, each aligned to 64 bytes. They share one buffer, which is used
            again by a later call only when nobody refers to any of them any more.

        Raises:
            ArgumentError: For arrays that cannot be summed (before anything is sent), or that are not the same on
                another member (with which the group is broken).
            PeerLostError: When a member's process or its connection is gone, or the member has closed its transport.
            TimeLimitError: When a member sends nothing for the time limit.
            TransportClosedError: When this process has closed the transport.
        """
        ...

    def all_gather(self, rows: Array) -> list[Array]:
        """Gives every member the rows of all members. Collective.

        Args:
            rows: An array of at least one axis, with the same dtype and the same shape behind the first axis on all
                members; of any dtype without Python objects.

        Returns:
            The arrays of the members in the order of ranks, all freshly made.

        Raises:
            ArgumentError, PeerLostError, TimeLimitError, TransportClosedError: As `all_reduce_sum`.
        """
        ...

    def take_deliveries(self) -> tuple[float, float, int]:
        """What the exchanges since the last call have shown of the links to the other members; see `Deliveries.take`.

        All zero, and rank -1, where nothing was measured.
        """
        ...

    def close(self) -> None:
        """Leaves the group, and tells the others. May be called by any thread, at any time, more than once.

        A call of another thread that waits in an exchange ends with `TransportClosedError`.
        """
        ...
