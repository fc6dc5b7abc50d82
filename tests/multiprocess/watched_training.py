"""The training of test_watched_jobs.py. Arguments: a directory; `workers` or `parameter servers`."""

import sys
from pathlib import Path

import keras
import numpy as np

import tfdist
from tfdist.callbacks import DistributedTensorBoard, ProgressBar

DIRECTORY, KIND = Path(sys.argv[1]), sys.argv[2]


def train():
    with tfdist.auto_strategy().scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(160, 4)).astype("float32")
    profile = {"profile_steps": (12, 14)} if KIND == "workers" else {}
    board = DistributedTensorBoard(DIRECTORY, performance_freq=5, **profile)
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=1, callbacks=[board, ProgressBar()])


if __name__ == "__main__":
    tfdist.run(train)
