"""tfdist's `fit`."""

from __future__ import annotations

from typing import Any

from benchmarks.participants.fit import time_fit
from benchmarks.participants.logical_devices import make_logical_devices
from benchmarks.place import Place


def measure(place: Place, model: str, epochs: int, devices: int = 1, transport: str = "auto") -> dict[str, Any]:
    import keras

    import tfdist

    if devices > 1:
        strategy = tfdist.mirrored_strategy(make_logical_devices(devices))
    else:
        strategy = tfdist.multi_worker_mirrored_strategy(transport=transport)
    assert strategy.num_replicas_in_sync == place.workers * devices
    return time_fit(keras, strategy, model, epochs)
