"""How long the bytes of each other member take to come, once it has begun to send."""

from __future__ import annotations

import statistics

__all__ = ["Deliveries"]


class Deliveries:
    """What the exchanges since the last look have shown of the links to the other members."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def note(self, rank: int, seconds: float) -> None:
        """A member's part of a sum has come, so long after its header."""
        self._seconds[rank] = self._seconds.get(rank, 0.0) + seconds

    def take(self) -> tuple[float, float, int]:
        """Begins anew, and returns what was seen.

        Returns:
            (The median over all members but the slowest, how much longer that one took, its rank), times in seconds;
            the rank is -1 where there are not two to compare.
        """
        seen, self._seconds = self._seconds, {}
        if not seen:
            return 0.0, 0.0, -1
        if len(seen) < 2:
            return next(iter(seen.values())), 0.0, -1
        slowest = max(seen, key=seen.__getitem__)
        usual = statistics.median(seconds for rank, seconds in seen.items() if rank != slowest)
        return usual, seen[slowest] - usual, slowest
