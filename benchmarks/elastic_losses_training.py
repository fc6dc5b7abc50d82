"""What elastic_losses.py trains. Arguments: a directory; after how many steps workers 1 and 3 end (0: never)."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.callbacks import FaultTolerantCheckpoint
from tfdist.keras_compat.managed_strategies import elastic_group

_DIRECTORY, _KILL_AT = Path(sys.argv[1]), int(sys.argv[2])
_TASK = os.environ.get("TFDIST_TASK", "alone")
_ROWS, _BATCH, _EPOCHS = 960, 32, 4


class _Record(keras.callbacks.Callback):
    """Writes the loss of each step, and ends two workers, once."""

    def __init__(self) -> None:
        super().__init__()
        self._file = open(_DIRECTORY / f"losses {_TASK}", "a", encoding="ascii")  # noqa: SIM115 - to the end
        self._sum = 0.0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        mean = float((logs or {})["loss"])  # of the epoch so far; all batches have as many rows
        before, self._sum = (self._sum if batch else 0.0), mean * (batch + 1)
        group = elastic_group(self.model.distribute_strategy)
        members = 1 if group is None else group.num_members
        step = int(self.model.optimizer.iterations.numpy())
        self._file.write(json.dumps({"step": step, "loss": self._sum - before, "members": members}) + "\n")
        self._file.flush()
        if members == 2 and step >= 2 * _KILL_AT:
            time.sleep(1.0)  # for the worker that is started again to come in the middle of the picture
        marker = _DIRECTORY / f"ended {_TASK}"
        if _TASK in ("worker 1", "worker 3") and step == _KILL_AT and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def _data() -> tf.data.Dataset:
    random = np.random.default_rng(7)
    x = random.normal(size=(_ROWS, 20)).astype("float32")
    y = np.sin(x @ random.normal(size=(20, 1))).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(_ROWS, seed=11).batch(_BATCH)


def _train() -> None:
    keras.utils.set_random_seed(3)
    with tfdist.auto_strategy().scope():
        inputs = keras.layers.Input((20,))
        hidden = keras.layers.Dense(64, activation="tanh")(inputs)
        hidden = keras.layers.BatchNormalization(synchronized=True)(hidden)
        model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    callbacks = [_Record(), FaultTolerantCheckpoint(_DIRECTORY / "checkpoints", save_each_epoch=False)]
    if _TASK == "alone":
        callbacks.pop()
    model.fit(_data(), epochs=_EPOCHS, verbose=0, callbacks=callbacks)


if __name__ == "__main__":
    tfdist.run(_train)
