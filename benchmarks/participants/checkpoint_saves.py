"""How long training stands still for a save of about 100 MB, every 20 steps, and how long it takes to restore it.

The pause is the time between the end of a step and the begin of the next, as callbacks see it, less what it usually is.
It does not hold what a writer in the background takes from the steps that follow: `step, saves included` has that.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.place import Place

_EVERY, _SAVES, _BATCH, _WIDTH = 20, 6, 64, 2048


def measure(place: Place, method: str) -> dict[str, Any]:
    """Trains one model with saves by one method, and restores the last one in a fresh model."""
    import keras

    keras.utils.set_random_seed(1)
    directory = place.directory / "saves"
    draw = np.random.default_rng(0)
    x = draw.random((_BATCH * _EVERY * _SAVES + _BATCH, _WIDTH), dtype=np.float32)
    y = draw.integers(0, 10, len(x))
    begin, end = _stopwatches(keras)
    model = _model(keras)
    saver = _saver(keras, method, model, directory)
    model.fit(x, y, batch_size=_BATCH, verbose=0, shuffle=False, callbacks=[end, *saver, begin])
    pauses = [(b - e) * 1000 for e, b in zip(end.times, begin.times[1:], strict=False)]
    saved = pauses[_EVERY - 1 :: _EVERY][1:]  # the first one makes what all later ones use
    usual = statistics.median(pauses)
    steps = [(b - a) * 1000 for a, b in zip(end.times[2 * _EVERY :], end.times[2 * _EVERY + 1 :], strict=False)]
    series = {
        "pause of a save": {"wall": [value - usual for value in saved] if saver else []},
        "step, saves included": {"wall": [statistics.fmean(steps)]},
    }
    if saver:
        series["restore"] = {"wall": [_time_restore(keras, method, directory, x, y)]}
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) if directory.exists() else 0
    return {"series": {k: v for k, v in series.items() if v["wall"]}, "bytes_kept": size}


def _model(keras: Any) -> Any:
    layers = [keras.layers.Dense(_WIDTH, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.layers.Input((_WIDTH,)), *layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss)  # 3 times 8.4 million float32: 101 MB
    model.optimizer.build(model.trainable_variables)
    return model


def _stopwatches(keras: Any) -> tuple[Any, Any]:
    class Begin(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.times.append(time.perf_counter())

    class End(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.times.append(time.perf_counter())

    return Begin(), End()


def _saver(keras: Any, method: str, model: Any, directory: Path) -> list[Any]:
    if method == "none":
        return []
    if method == "tfdist":
        from tfdist.callbacks import FaultTolerantCheckpoint

        return [FaultTolerantCheckpoint(directory, save_interval_steps=_EVERY, keep_newest=1)]
    if method == "backup":
        backup = keras.callbacks.BackupAndRestore(str(directory), save_freq=_EVERY, delete_checkpoint=False)
        return [backup]
    return [_manager_callback(keras, model, directory)]


def _manager(model: Any, directory: Path) -> Any:
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    return tf.train.CheckpointManager(checkpoint, str(directory), max_to_keep=1)


def _manager_callback(keras: Any, model: Any, directory: Path) -> Any:
    manager = _manager(model, directory)

    class Manage(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            if (batch + 1) % _EVERY == 0:
                manager.save()

    return Manage()


def _time_restore(keras: Any, method: str, directory: Path, x: Any, y: Any) -> float:
    """Milliseconds until the first step of a `fit` that restores, less those of one that does not."""
    if method == "manager":
        model = _model(keras)
        manager = _manager(model, directory)
        start = time.perf_counter()
        manager.checkpoint.restore(manager.latest_checkpoint).expect_partial()
        return (time.perf_counter() - start) * 1000

    def until_first_step(saver: list[Any], model: Any) -> float:
        begin, _ = _stopwatches(keras)
        start = time.perf_counter()
        model.fit(x[:_BATCH], y[:_BATCH], epochs=3, verbose=0, shuffle=False, callbacks=[*saver, begin])
        return (begin.times[0] - start) * 1000

    from tfdist.callbacks import fault_tolerant_checkpoint

    without = until_first_step([], _model(keras))
    model = _model(keras)
    saver = _saver(keras, method, model, directory)
    fault_tolerant_checkpoint._num_fits.clear()  # as in a new process
    return until_first_step(saver, model) - without
