"""The training of test_started_by_slurm.py. Argument: a directory. Its steps take time, for a test to disturb it."""

import os
import sys
import time
from pathlib import Path

import keras
import numpy as np

import tfdist
from tfdist.callbacks import FaultTolerantCheckpoint

DIRECTORY = Path(sys.argv[1])
TASK = os.environ.get("SLURM_PROCID", "alone")


class Pace(keras.callbacks.Callback):
    """Notes each step, and the process that has made it."""

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        with (DIRECTORY / f"steps {TASK}").open("a") as file:
            file.write(f"{step} {os.getpid()}\n")
        time.sleep(0.0 if TASK == "alone" else 0.1)


def train():
    keras.utils.set_random_seed(1)
    with tfdist.auto_strategy().scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    x = np.random.default_rng(0).normal(size=(80, 4)).astype("float32")
    callbacks = [FaultTolerantCheckpoint(DIRECTORY / f"checkpoints {TASK == 'alone'}", save_interval_steps=5), Pace()]
    model.fit(x, x[:, :1], batch_size=8, epochs=6, verbose=0, callbacks=callbacks)
    np.savez(DIRECTORY / f"weights {TASK}.npz", *model.get_weights())


if __name__ == "__main__":
    tfdist.run(train)
