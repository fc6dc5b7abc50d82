"""Times one all-reduce after another, for each size."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.place import Place

__all__ = ["label", "time_sizes"]

_WORTH_BYTES = 1 << 26  # so much is summed for each size, within the limits that follow
_FEWEST, _MOST, _WARM_UP = 5, 50, 3


def label(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} kB"


def time_sizes(
    place: Place, sizes: Sequence[int], prepare: Callable[[np.ndarray], Callable[[], Any]]
) -> dict[str, Any]:
    """Times what `prepare` returns, after it has shown that it sums.

    Args:
        place: Of this process.
        sizes: Bytes of float32.
        prepare: Given an array of rank + 1 everywhere, returns a function that sums it over all members and returns
            the sum, or `None` if it only moves bytes.
    """
    series = {}
    for size in sizes:
        reduce = prepare(np.full(size // 4, place.rank + 1, np.float32))
        for _ in range(_WARM_UP):
            result = reduce()
        if result is not None:
            expected = place.workers * (place.workers + 1) / 2
            assert np.all(np.asarray(result) == expected), f"not the sum of {place.workers} members"
        walls, cpus = [], []
        for _ in range(max(_FEWEST, min(_MOST, _WORTH_BYTES // size))):
            start, used = time.perf_counter(), time.process_time()
            result = reduce()
            walls.append((time.perf_counter() - start) * 1000)
            cpus.append((time.process_time() - used) * 1000)
        series[label(size)] = {"wall": walls, "cpu": cpus}
    return {"series": series}
