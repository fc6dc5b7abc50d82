"""Training under parameter servers until worker 1 has been started twice: `replaced_worker.py DIRECTORY`."""

import os
import sys
import time
from pathlib import Path

import keras
import numpy as np

import tfdist

DIRECTORY = Path(sys.argv[1])
(DIRECTORY / f"{os.environ['TFDIST_TASK']} {os.getpid()}").touch()
LIMIT_S = 120


class UntilReplaced(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        (DIRECTORY / "training").touch()
        if len(list(DIRECTORY.glob("worker 1 *"))) == 2:
            self.rest = getattr(self, "rest", 20) - 1
            self.model.stop_training = self.rest == 0
        elif time.monotonic() - STARTED > LIMIT_S:
            raise TimeoutError("worker 1 was not started again")


def train():
    strategy = tfdist.auto_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    history = model.fit(x, x[:, :1], batch_size=8, epochs=1_000_000, verbose=0, callbacks=[UntilReplaced()])
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert int(model.optimizer.iterations.numpy()) >= 8 * len(history.epoch)
    print("trained", flush=True)


STARTED = time.monotonic()
if __name__ == "__main__":
    tfdist.run(train)
