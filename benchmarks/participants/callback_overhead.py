"""Steps with a callback of tfdist's, and without it, in turns in one process.

In one process, because processes of the same program differ by more than this costs.
"""

from __future__ import annotations

from typing import Any

from benchmarks.callbacks import CALLBACKS
from benchmarks.keras_models import build_compiled, make_dataset
from benchmarks.place import EpochClock, Place
from benchmarks.workloads import WORKLOADS

_TURNS = 6


def measure(place: Place, model: str, epochs: int, callback: str) -> dict[str, Any]:
    import keras

    import tfdist

    strategy = tfdist.multi_worker_mirrored_strategy()
    with strategy.scope():
        network = build_compiled(keras, model)
    steps = WORKLOADS[model].steps
    series: dict[str, dict[str, list[float]]] = {
        name: {"wall": [], "cpu": []} for name in ("without the callback", "with it")
    }

    def train(turn: int, name: str) -> None:
        clock = EpochClock(steps)

        class AtEpochEnd(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
                clock.epoch_ended()

        callbacks = [AtEpochEnd()]
        if name == "with it":
            callbacks += CALLBACKS[callback](keras, place.directory / f"turn {turn}" / place.task)
        data = make_dataset(model, strategy.num_replicas_in_sync)
        network.fit(data, epochs=1 + epochs, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
        if turn:  # the first turn makes what all later ones use
            for kind, values in clock.series().items():
                series[name][kind] += values

    for turn in range(1 + _TURNS):
        for name in series:
            train(turn, name)
    return {"series": series}
