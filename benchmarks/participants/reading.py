"""Reading batches from memory, as `fit` does, without training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.keras_models import make_dataset
from benchmarks.place import Place

_WARM_UP, _BATCHES, _REPEATS = 16, 64, 5


def measure(_: Place, model: str, rows: Sequence[int]) -> dict[str, Any]:
    """Milliseconds a batch, for each number of rows."""
    series = {}
    for number in rows:
        batches = iter(make_dataset(model, 1, rows=number).prefetch(2))
        for _ in range(_WARM_UP):
            next(batches)
        walls, cpus = [], []
        for _ in range(_REPEATS):
            start, used = time.perf_counter(), time.process_time()
            for _ in range(_BATCHES):
                next(batches)
            walls.append((time.perf_counter() - start) * 1000 / _BATCHES)
            cpus.append((time.process_time() - used) * 1000 / _BATCHES)
        series[f"{number} rows read"] = {"wall": walls, "cpu": cpus}
    return {"series": series}
