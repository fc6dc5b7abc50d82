"""How the rows of one global batch are shared out among the replicas. Pure."""

from __future__ import annotations

from typing import Any

__all__ = ["row_bounds"]


def row_bounds(num_rows: Any, replica: int, num_replicas: int) -> tuple[Any, Any]:
    """Returns the half-open range of rows that one replica trains on.

    The ranges of all replicas are consecutive, cover every row once and differ in length by at most one row. With
    fewer rows than replicas some ranges are empty.

    Args:
        num_rows: Rows in the global batch: an `int`, or an integer tensor (only `*` and `//` are used).
        replica: Index of the replica in the job, from 0.
        num_replicas: Number of replicas in the job.

    Returns:
        `(start, stop)`, of the type of `num_rows`.
    """
    return replica * num_rows // num_replicas, (replica + 1) * num_rows // num_replicas
