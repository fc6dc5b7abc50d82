"""What each member spends its time on, told to all of them in the exchange of a step's gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tfdist.balancing import COLUMNS
from tfdist.communication.transports.interface import Array
from tfdist.reporting.heartbeat import seconds_by_phase

__all__ = ["StepTimings"]

#: The column of each phase of a heartbeat (tfdist/cluster/heartbeats.py); what is `outside` of training is not told.
_COLUMN_OF = {"step": "compute"} | {name: name for name in ("input", "save", "other", "exchange", "trace")}
_PHASE_COLUMNS = [COLUMNS.index(column) for column in _COLUMN_OF.values()]
_ROWS, _SHARE = COLUMNS.index("rows"), COLUMNS.index("share")


class StepTimings:
    """The table that travels with the gradients: a row for each member in the order of ranks, `COLUMNS` of numbers.

    Every member fills in its own row and zeros for the others, so that the sum is the table of all. A row tells of the
    time since the member's row before: of the rest of the last step, what came between, and this step so far.

    Attributes:
        shares: What the first member gives the members of the next global batch, by rank; None for nothing.
        observers: Called with every table, in the order of the steps, by the thread that exchanges. They must be quick,
            and keep no reference to the table but a copy.
    """

    def __init__(self) -> None:
        self.shares: Sequence[float] | None = None
        self.observers: list[Callable[[Array], None]] = []
        self._told = np.zeros(len(_COLUMN_OF))

    def own_table(self, rank: int, num_members: int, rows: float, dtype: np.dtype[np.generic]) -> Array:
        """The table with this member's row filled in."""
        totals = seconds_by_phase()
        now = np.array([totals[phase] for phase in _COLUMN_OF])
        table = np.zeros((num_members, len(COLUMNS)), dtype)
        table[rank, _PHASE_COLUMNS] = now - self._told
        table[rank, _ROWS] = rows
        if rank == 0 and self.shares is not None and len(self.shares) == num_members:
            table[:, _SHARE] = self.shares
        self._told = now
        return table

    def take(self, table: Array) -> None:
        """Shows the table of all members to the observers."""
        for observer in self.observers:
            observer(table)
