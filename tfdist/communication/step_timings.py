"""What each member spends its time on, told to all of them in the exchange of a step's gradients."""

from __future__ import annotations

import numpy as np

from tfdist.communication.transports.interface import Array
from tfdist.reporting.heartbeat import seconds_by_phase

__all__ = ["PARTS", "StepTimings"]

#: Phases of a heartbeat (tfdist/cluster/heartbeats.py). What is `outside` of training and `trace` are not told.
PARTS = ("input", "step", "exchange", "save", "other")


class StepTimings:
    """The timings that travel with the gradients.

    Every member fills in its own row and zeros for the others, so that the sum is the table of all. A row tells of the
    time since the member's row before: of the rest of the last step, what came between, and this step so far.

    Attributes:
        latest: Seconds, a row for each member in the order of ranks and a column for each of `PARTS`; None before the
            first exchange.
        num_tables: How many tables have come.
    """

    def __init__(self) -> None:
        self.latest: Array | None = None
        self.num_tables = 0
        self._told = np.zeros(len(PARTS))

    def own_table(self, rank: int, num_members: int, dtype: np.dtype[np.generic]) -> Array:
        """The table with this member's row filled in."""
        totals = seconds_by_phase()
        now = np.array([totals[part] for part in PARTS])
        table = np.zeros((num_members, len(PARTS)), dtype)
        table[rank] = now - self._told
        self._told = now
        return table

    def take(self, table: Array) -> None:
        """Takes the table of all members, and copies it."""
        self.latest = table.astype(np.float64)
        self.num_tables += 1
