"""tfdist's `fit` with one of `CALLBACKS`."""

from __future__ import annotations

from typing import Any

from benchmarks.callbacks import CALLBACKS, PROGRESS_BAR
from benchmarks.participants.fit import time_fit
from benchmarks.place import Place


def measure(place: Place, model: str, epochs: int, callback: str) -> dict[str, Any]:
    import keras

    import tfdist

    directory = place.directory / f"callback of {place.task}"
    directory.mkdir()
    strategy = tfdist.multi_worker_mirrored_strategy()
    assert strategy.num_replicas_in_sync == place.workers
    callbacks = CALLBACKS[callback](keras, directory)
    verbose = 1 if callback == PROGRESS_BAR else 0
    return time_fit(keras, strategy, model, epochs, callbacks=callbacks, verbose=verbose)
