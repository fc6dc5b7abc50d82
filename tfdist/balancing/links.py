"""Whose link to the others is slow: from what each worker says of the bytes that came to it. Pure.

A worker compares the others with each other: by one clock, from when each of them has begun to send. So a worker that
begins late is none with a slow link. With two workers there is nothing to compare, and nothing is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["link_excess_of"]

_Floats = np.ndarray[Any, np.dtype[np.float64]]


def link_excess_of(told: _Floats) -> tuple[float, _Floats]:
    """By how much the bytes to or from each worker take longer than those of others.

    Args:
        told: `(steps, workers, 3)`: of each worker the seconds in which the bytes of others came, the median over all
            but the slowest of them; its rank plus 1 (0 for none); and how much longer that one took.

    Returns:
        (what bytes take, the median over steps and workers, seconds; the excess, `(steps, workers)`, seconds).
    """
    num_steps, num_workers, _ = told.shape
    excess = np.zeros((num_steps, num_workers))
    usual = []
    for step, (delivery, slowest, lag) in enumerate(told.transpose(0, 2, 1)):
        measured = np.flatnonzero(slowest > 0)
        if len(measured) < 3:
            continue
        named = slowest[measured].astype(int) - 1
        worst = int(np.bincount(named, minlength=num_workers).argmax())
        is_witness = measured != worst
        says_so = is_witness & (named == worst)
        if says_so.sum() > is_witness.sum() / 2:
            excess[step, worst] = np.median(lag[measured[says_so]])
        # What comes late to one worker from everybody is late by that worker's own link.
        times = delivery[measured]
        usual.append(np.median(times))
        latest = int(times.argmax())
        others = np.median(np.delete(times, latest))
        excess[step, measured[latest]] = max(excess[step, measured[latest]], times[latest] - others)
    return float(np.median(usual)) if usual else 0.0, excess
