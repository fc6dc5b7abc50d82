"""How much the workers get done, and where their time goes: means over some steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdist.balancing.window import COLUMNS, PARTS

__all__ = ["Rates", "summarize_rates"]

_EXCHANGE, _TRACE, _ROWS = (COLUMNS.index(name) for name in ("exchange", "trace", "rows"))


@dataclass(frozen=True)
class Rates:
    """Means over some steps; lists have an entry for each worker, in the order of ranks.

    Attributes:
        rows_per_s: Of each worker.
        total_rows_per_s: Of all.
        steps_per_s: Of the job.
        seconds: By part of a step, of each worker: those of `PARTS`, `trace`, `exchange` without waiting, and `wait`.
        step_s: A step's time, as each worker has it.
        imbalance: The longest time without exchanges beside the mean, less 1.
    """

    rows_per_s: list[float]
    total_rows_per_s: float
    steps_per_s: float
    seconds: dict[str, list[float]]
    step_s: list[float]
    imbalance: float


def summarize_rates(tables: Sequence[np.ndarray[Any, Any]]) -> Rates:
    """Sums up tables of one size, `(workers, COLUMNS)` each, at least one."""
    every = np.asarray(tables, np.float64)
    means = every.mean(axis=0)
    transfer = every[:, :, _EXCHANGE].min(axis=1).mean()
    own = means[:, : len(PARTS)].sum(axis=1)
    step = own + means[:, _EXCHANGE] + means[:, _TRACE]
    seconds = {part: means[:, k].tolist() for k, part in enumerate(PARTS)}
    seconds["trace"] = means[:, _TRACE].tolist()
    seconds["exchange"] = [float(transfer)] * len(means)
    seconds["wait"] = (means[:, _EXCHANGE] - transfer).tolist()
    per_s = 1 / np.maximum(step, 1e-9)
    return Rates(
        rows_per_s=(means[:, _ROWS] * per_s).tolist(),
        total_rows_per_s=float(means[:, _ROWS].sum() / max(step.mean(), 1e-9)),
        steps_per_s=float(1 / max(step.mean(), 1e-9)),
        seconds=seconds,
        step_s=step.tolist(),
        imbalance=float(own.max() / max(own.mean(), 1e-9) - 1),
    )
