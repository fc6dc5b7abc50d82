"""The training of test_undisturbed_jobs.py, slow in every way that is no hang. Arguments: a directory, seconds."""

import os
import sys
import threading
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfdist

DIRECTORY, SECONDS = Path(sys.argv[1]), float(sys.argv[2])
TASK = os.environ["TFDIST_TASK"]
BEGAN = time.monotonic()
ROWS, BATCH = 2400, 12
HAS_BEGUN = threading.Event()  # to train: what is traced before builds the model


def take_time(what, task, seconds):
    """Once in the job, in one task."""
    if task == TASK and not (DIRECTORY / what).exists():
        (DIRECTORY / what).touch()
        time.sleep(seconds)


class SlowToTrace(keras.layers.Layer):
    def call(self, inputs):
        if HAS_BEGUN.is_set():
            take_time("trace", "worker 1", 70)
        return inputs


class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        HAS_BEGUN.set()

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)
        if batch == 150:
            take_time("callback", "worker 0", 90)

    def on_epoch_end(self, epoch, logs=None):
        if time.monotonic() - BEGAN > SECONDS:
            self.model.stop_training = True


def rows():
    for number in range(ROWS):
        if number == ROWS // 2:
            take_time("input", "worker 1", 45)
        yield np.full(4, number % 7, "float32"), np.float32(number % 5)


def rows_to_evaluate():
    (DIRECTORY / "evaluation").touch()
    for number in range(140 * BATCH):
        if number % BATCH == 0:
            time.sleep(0.5)
        yield np.full(4, number % 7, "float32"), np.float32(number % 5)


def train():
    keras.utils.set_random_seed(1)
    with tfdist.auto_strategy().scope():
        layers = [keras.layers.Input((4,)), SlowToTrace(), keras.layers.Dense(4), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
    spec = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((), tf.float32))
    data, held_out = (
        tf.data.Dataset.from_generator(each, output_signature=spec).batch(BATCH, drop_remainder=True)
        for each in (rows, rows_to_evaluate)
    )
    model.fit(data, epochs=1000, verbose=0, callbacks=[Slow()], validation_data=held_out)
    print(f"trained for {time.monotonic() - BEGAN:.0f} s", flush=True)


if __name__ == "__main__":
    tfdist.run(train)
