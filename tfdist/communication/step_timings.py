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
_COMPUTE, _EXCHANGE = COLUMNS.index("compute"), COLUMNS.index("exchange")
_LINKS = [COLUMNS.index(column) for column in ("delivery", "slowest", "lag")]


class StepTimings:
    """The table that travels with the gradients: a row for each member in the order of ranks, `COLUMNS` of numbers.

    Every member fills in its own row and zeros for the others, so that the sum is the table of all. A row tells of the
    time since the member's row before: of the rest of the last step, what came between, and this step so far.

    Attributes:
        shares: What the first member gives the members of the next global batch, by rank; None for nothing.
        is_wanted: Whether somebody wants the timings where telling them costs time. To be set before a step is traced.
        observers: Called with every table, in the order of the steps, by the thread that exchanges. They must be quick,
            and keep no reference to the table but a copy.
    """

    def __init__(self) -> None:
        self.shares: Sequence[float] | None = None
        self.is_wanted = False
        self.observers: list[Callable[[Array], None]] = []
        self._told: dict[int, Array] = {}
        self._early_s: dict[int, float] = {}

    def own_table(
        self,
        rank: int,
        num_members: int,
        rows: float,
        dtype: np.dtype[np.generic],
        deliveries: tuple[float, float, int] = (0.0, 0.0, -1),
        *,
        local_index: int = 0,
    ) -> Array:
        """The table with one row filled in.

        Args:
            rank: Of the member whose row it is.
            num_members: How many rows the table has.
            rows: Of the member's batch.
            dtype: Of the table.
            deliveries: Those of `Transport.take_deliveries`.
            local_index: Which of the members that are in this process it is.
        """
        totals = seconds_by_phase()
        now = np.array([totals[phase] for phase in _COLUMN_OF])
        table = np.zeros((num_members, len(COLUMNS)), dtype)
        table[rank, _PHASE_COLUMNS] = now - self._told.get(local_index, np.zeros(len(_COLUMN_OF)))
        early_s = self._early_s.pop(local_index, 0.0)
        table[rank, _COMPUTE] -= early_s
        table[rank, _EXCHANGE] += early_s
        table[rank, _ROWS] = rows
        usual_s, lag_s, slowest = deliveries
        table[rank, _LINKS] = usual_s, slowest + 1, lag_s
        if rank == 0 and self.shares is not None and len(self.shares) == num_members:
            table[:, _SHARE] = self.shares
        self._told[local_index] = now
        return table

    def note_early(self, local_index: int, seconds: float) -> None:
        """So long the member has waited for others of this process, which the next table calls exchange."""
        self._early_s[local_index] = seconds

    def take(self, table: Array) -> None:
        """Shows the table of all members to the observers."""
        for observer in self.observers:
            observer(table)
