"""The training of test_tensorboard_of_a_job.py. Arguments: a directory; after which step to kill, or 0; which one."""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np

import tfdist
from tfdist.callbacks import DistributedTensorBoard, FaultTolerantCheckpoint

DIRECTORY, KILL_AFTER, VICTIM = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
TASK = os.environ["TFDIST_TASK"]
ROWS, BATCH, EPOCHS = 240, 12, 6


class Kill(keras.callbacks.Callback):
    """Once in the life of the job."""

    def on_train_batch_end(self, batch, logs=None):
        note = DIRECTORY / "killed"
        if TASK == VICTIM and KILL_AFTER and not note.exists():
            step = int(self.model.optimizer.iterations.numpy())
            if step == KILL_AFTER:
                note.write_text(str(step))
                os.kill(os.getpid(), signal.SIGKILL)


def train():
    keras.utils.set_random_seed(3)
    with tfdist.auto_strategy().scope():
        layers = [keras.layers.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    x = np.random.default_rng(1).normal(size=(ROWS, 8)).astype("float32")
    y = x[:, :1] * 2 + x[:, 1:2] ** 2
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        FaultTolerantCheckpoint(DIRECTORY / "checkpoints", save_interval_steps=15),
        DistributedTensorBoard(DIRECTORY / "logs", update_freq="batch", histogram_freq=2, performance_freq=10),
        Kill(),
    ]
    history = model.fit(
        x, y, batch_size=BATCH, epochs=EPOCHS, validation_data=(x[:24], y[:24]), verbose=0, callbacks=callbacks
    )
    if TASK == "worker 2":  # who is never killed
        (DIRECTORY / "history.json").write_text(json.dumps(history.history))


if __name__ == "__main__":
    tfdist.run(train)
