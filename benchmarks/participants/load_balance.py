"""Steps of two workers that compute as long as they have rows, of which one is slow in turns; in one process each.

The slow worker computes everything twice, or sleeps in its input or in a callback.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.place import EpochClock, Place

_TURNS, _EPOCHS, _STEPS, _ROWS = 3, 5, 20, 48
_SLEEP_S = 0.04


def measure(place: Place, kind: str) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    import tfdist
    from tfdist.callbacks import LoadBalanceMonitor

    is_slow = False
    matrix = np.ones((300, 300), np.float32) / 300

    def compute(x: Any) -> Any:
        for _ in range(len(x) * (2 if is_slow and kind == "compute" else 1)):
            np.matmul(matrix, matrix)
        return x

    def wait(x: Any = None) -> Any:
        if is_slow:
            time.sleep(_SLEEP_S)
        return x

    def through(function: Any, x: Any) -> Any:
        y = tf.numpy_function(function, [x], x.dtype)
        y.set_shape(x.shape)
        return y

    class AsLongAsItHasRows(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs + 0.0 * tf.stop_gradient(through(compute, inputs))

    strategy = tfdist.multi_worker_mirrored_strategy()
    with strategy.scope():
        network = keras.Sequential([keras.layers.Input((4,)), AsLongAsItHasRows(), keras.layers.Dense(1)])
        network.compile("sgd", "mse")
    x = np.zeros((_ROWS * _STEPS, 4), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(_ROWS).repeat()
    if kind == "input":
        data = data.map(lambda x, y: (through(wait, x), y))

    series: dict[str, dict[str, list[float]]] = {}

    def train(label: str, *, rebalance: bool = False) -> Any:
        clock = EpochClock(_STEPS)

        class AtEpochEnd(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
                clock.epoch_ended()

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
                if kind == "other":
                    wait()

        monitor = LoadBalanceMonitor(window_steps=10, rebalance=rebalance, verbose=0)
        network.fit(data, epochs=_EPOCHS, steps_per_epoch=_STEPS, verbose=0, callbacks=[AtEpochEnd(), monitor])
        walls = clock.series()["wall"][-2:] if rebalance else clock.series()["wall"]  # when rows have been moved
        series.setdefault(label, {"wall": []})["wall"] += walls
        return monitor.judgement

    for turn in range(1 + _TURNS):
        if turn == 1:
            series.clear()  # the first turn makes what all later ones use
        is_slow = False
        train("no worker is slow")
        is_slow = place.rank == 1
        judgement = train("worker 1 is slow")
        said = [1000 * each.cost.without_s for each in judgement.stragglers if each.worker == 1]
        series.setdefault("as it is said to be without", {"wall": []})["wall"] += said
        if kind == "compute":
            train("worker 1 is slow, rows are moved", rebalance=True)
            # Two thirds of the rows on the fast one, not a half.
            ideal = [4 / 3 * wall for wall in series["no worker is slow"]["wall"][-_EPOCHS + 1 :]]
            series.setdefault("the ideal split", {"wall": []})["wall"] += ideal
    return {"series": series}
