"""What some steps took on each worker, by robust statistics. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfdist.balancing.links import link_excess_of

__all__ = ["COLUMNS", "PARTS", "Window", "summarize_steps"]

#: Where a worker's time goes, besides exchanges.
PARTS = ("input", "compute", "save", "other")
#: The columns of a table: seconds of each part, of exchanges and of traces, the rows of the worker's batch, and the
#: share of the next global batch that it gets (0 where shares are equal, always). Then how long the bytes of the others
#: take to come to it, of which other they take longest (its rank plus 1; 0 for none), and by how much.
COLUMNS = (*PARTS, "exchange", "trace", "rows", "share", "delivery", "slowest", "lag")
_EXCHANGE, _TRACE, _ROWS, _DELIVERY = (COLUMNS.index(name) for name in ("exchange", "trace", "rows", "delivery"))
_MOST_LEFT_OUT = 16  # with more workers, one of them changes the median of all too little to leave it out
_MATTERS = 0.1  # of a step's time: what makes a link worth a word
_SIGMA = 1.4826  # median absolute deviations of a normal distribution in a standard deviation


@dataclass(frozen=True)
class Window:
    """Some steps. All times are in seconds; lists have an entry for each worker, in the order of ranks.

    Attributes:
        num_steps: How many steps count.
        parts: By part, the median time of each worker.
        own: The median of the time of each worker that is no exchange.
        peers: The median of what the others take at the same time (the median of them, step by step).
        noise: The standard error of `own - peers`.
        persistence: In which share of the steps the worker took longer than its peers by half of `tolerance`.
        waiting: The median of what each worker waits for others: its exchange less the shortest one of the step.
        transfer: The median of the shortest exchange of a step, which is what the bytes take.
        step: The median of a step's time.
        without: For each worker the median of a step's time if that worker were no slower than the slowest other one: a
            step lasts until the slowest has come, and then as long as the bytes take.
        rows: The mean of each worker's rows.
        delivery: The median of what the bytes of a worker take to others; 0 where that is not measured.
        link_excess: The median of what each worker's bytes, to it or from it, take longer than that.
        link_noise: The standard error of `link_excess`.
        link_persistence: In which share of the steps they took longer by a tenth of the step.
        without_link: For each worker the time of a step if its bytes took as long as those of the others.
    """

    num_steps: int
    parts: dict[str, list[float]]
    own: list[float]
    peers: list[float]
    noise: list[float]
    persistence: list[float]
    waiting: list[float]
    transfer: float
    step: float
    without: list[float]
    rows: list[float]
    delivery: float = 0.0
    link_excess: list[float] = field(default_factory=list)
    link_noise: list[float] = field(default_factory=list)
    link_persistence: list[float] = field(default_factory=list)
    without_link: list[float] = field(default_factory=list)

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return len(self.own)


def summarize_steps(tables: Sequence[np.ndarray[Any, Any]], tolerance: float) -> Window | None:
    """Sums up tables of one size.

    Args:
        tables: Of consecutive steps: `(workers, COLUMNS)` each. Steps in which somebody traced are left out.
        tolerance: The share by which a worker may take longer than its peers.

    Returns:
        None where no step counts.
    """
    every = np.asarray(tables, np.float64)
    every = every[(every[:, :, _TRACE] == 0).all(axis=1)] if len(every) else every
    if not len(every):
        return None
    own = every[:, :, : len(PARTS)].sum(axis=2)
    peers = _peers_of(own)
    exchange = every[:, :, _EXCHANGE]
    transfer = exchange.min(axis=1)
    excess = own - peers
    delivery, link_excess = link_excess_of(every[:, :, _DELIVERY:])
    step = float(np.median(np.median(own + exchange, axis=1)))
    middle_excess = np.median(link_excess, axis=0)
    # A sum has two parts of as many bytes: parts of the terms go to the others, and parts of the sum come back.
    faster = np.minimum(2 * middle_excess, float(np.median(transfer)))
    return Window(
        num_steps=len(every),
        parts={part: np.median(every[:, :, k], axis=0).tolist() for k, part in enumerate(PARTS)},
        own=np.median(own, axis=0).tolist(),
        peers=np.median(peers, axis=0).tolist(),
        noise=_standard_error(excess).tolist(),
        persistence=(excess > tolerance / 2 * peers).mean(axis=0).tolist(),
        waiting=np.median(exchange - transfer[:, None], axis=0).tolist(),
        transfer=float(np.median(transfer)),
        step=step,
        without=np.median(_slowest_others(own) + transfer[:, None], axis=0).tolist(),
        rows=every[:, :, _ROWS].mean(axis=0).tolist(),
        delivery=delivery,
        link_excess=middle_excess.tolist(),
        link_noise=_standard_error(link_excess).tolist(),
        link_persistence=(link_excess > _MATTERS * step).mean(axis=0).tolist(),
        without_link=(step - faster).tolist(),
    )


def _standard_error(samples: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of the medians over the first axis, if the samples were normal but for outliers."""
    deviation: np.ndarray[Any, Any] = np.median(np.abs(samples - np.median(samples, axis=0)), axis=0)
    return _SIGMA * deviation / math.sqrt(len(samples))


def _peers_of(own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each step and worker the median of the other workers' times."""
    num_workers = own.shape[1]
    if num_workers == 1:
        return own
    if num_workers > _MOST_LEFT_OUT:
        return np.broadcast_to(np.median(own, axis=1, keepdims=True), own.shape)
    others = [np.median(np.delete(own, index, axis=1), axis=1) for index in range(num_workers)]
    return np.stack(others, axis=1)


def _slowest_others(own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each step and worker the time of the slowest other worker."""
    if own.shape[1] == 1:
        return own
    second, first = np.partition(own, -2, axis=1)[:, -2:].T
    is_slowest = np.arange(own.shape[1]) == own.argmax(axis=1)[:, None]
    slowest: np.ndarray[Any, Any] = np.where(is_slowest, second[:, None], first[:, None])
    return slowest
