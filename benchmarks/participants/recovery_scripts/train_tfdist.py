"""The training of `recovery_job`, with tfdist: `train_tfdist.py DIRECTORY KILL_AT`."""

from __future__ import annotations

import os
import sys
from typing import Any

import keras

import tfdist
from benchmarks.keras_models import build_compiled, make_dataset
from benchmarks.participants.recovery_job import note_step

DIRECTORY, KILL_AT = sys.argv[1], int(sys.argv[2])
RANK = int(os.environ["TFDIST_TASK"].split()[1])


class Note(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        note_step(DIRECTORY, KILL_AT, RANK, int(self.model.optimizer.iterations.numpy()))


def train() -> None:
    strategy = tfdist.auto_strategy()
    with strategy.scope():
        model = build_compiled(keras, "small_dense")
    saved = tfdist.callbacks.FaultTolerantCheckpoint(f"{DIRECTORY}/checkpoints", save_interval_steps=10)
    model.fit(make_dataset("small_dense", 3, 60), steps_per_epoch=60, verbose=0, callbacks=[saved, Note()])


tfdist.run(train)
