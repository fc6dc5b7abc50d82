"""`fit` of a compiled model, timed at the ends of epochs.

The dataset is endless, which spares tf_keras a collective a step (see tf_loop.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.keras_models import build_compiled, make_dataset
from benchmarks.place import EpochClock
from benchmarks.workloads import WORKLOADS


def time_fit(
    keras: Any,
    strategy: Any,
    model: str,
    epochs: int,
    *,
    rows: int | None = None,
    callbacks: Sequence[Any] = (),
    verbose: int = 0,
) -> dict[str, Any]:
    """Trains for one epoch to warm up, and for `epochs` to be timed.

    Args:
        keras: The module keras or tf_keras.
        strategy: A strategy of TensorFlow's, in whose scope the model is made.
        model: A key of `WORKLOADS`.
        epochs: How many values to measure.
        rows: Of a replica's batch; the workload's if None.
        callbacks: Further ones.
        verbose: As in `fit`.
    """
    steps = WORKLOADS[model].steps
    clock = EpochClock(steps)

    class AtEpochEnd(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            clock.epoch_ended()

    with strategy.scope():
        network = build_compiled(keras, model)
    data = make_dataset(model, strategy.num_replicas_in_sync, rows=rows)
    history = network.fit(
        data, epochs=1 + epochs, steps_per_epoch=steps, verbose=verbose, callbacks=[*callbacks, AtEpochEnd()]
    )
    return {"series": {"": clock.series()}, "losses": history.history["loss"]}
