"""tfdist's `fit` with several sizes of a worker's batch, one after the other in the same processes.

With `alone`, every process trains by itself, at the same time as the others: what a step takes without an exchange,
while as many cores are busy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from benchmarks.participants.fit import time_fit
from benchmarks.place import Place


def measure(place: Place, model: str, epochs: int, rows: Sequence[int], alone: bool = False) -> dict[str, Any]:
    if alone:
        os.environ.pop("TF_CONFIG", None)

    import keras

    import tfdist

    strategy = tfdist.multi_worker_mirrored_strategy()
    assert strategy.num_replicas_in_sync == (1 if alone else place.workers)
    series = {}
    for number in rows:
        place.tell_all(f"before {number} rows", "")
        measured = time_fit(keras, strategy, model, epochs, rows=number)
        series[f"{number} rows a worker"] = measured["series"][""]
    return {"series": series}
