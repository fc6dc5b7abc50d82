"""The training that test_hangs_of_jobs.py lets hang: `hanging_training.py DIRECTORY KIND`. Worker 1 hangs at step 6."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.callbacks import FaultTolerantCheckpoint

DIRECTORY, KIND = Path(sys.argv[1]), sys.argv[2]
IS_CULPRIT = os.environ["TFDIST_TASK"] == "worker 1" and not (DIRECTORY / "hung").exists()
LATE = 6


def note():
    (DIRECTORY / "hung").write_text(str(time.monotonic()))


class Culprit(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if not IS_CULPRIT or int(self.model.optimizer.iterations.numpy()) != LATE:
            return
        if KIND == "loop":
            note()
            spin_for_ever()
        if KIND == "stopped":
            note()
            os.kill(os.getpid(), signal.SIGSTOP)


def spin_for_ever():
    while True:
        pass


def rows_that_deadlock():
    lock = threading.Lock()
    for number in range(12 * 8):
        if KIND == "input" and IS_CULPRIT and number == 12 * LATE:
            note()
            lock.acquire()
            lock.acquire()
        yield np.full(4, number % 7, "float32"), np.float32(number % 5)


def spin_in_the_step(value):
    if IS_CULPRIT and spin_in_the_step.count == LATE:
        note()
        spin_for_ever()
    spin_in_the_step.count += 1
    return value


spin_in_the_step.count = 0


class Busy(keras.layers.Layer):
    def call(self, inputs):
        outputs = tf.numpy_function(spin_in_the_step, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return inputs + 0.0 * tf.stop_gradient(outputs)


def train():
    keras.utils.set_random_seed(1)
    strategy = tfdist.auto_strategy()
    with strategy.scope():
        layers = [keras.layers.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(1)]
        if KIND == "step":
            layers.insert(1, Busy())
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
    spec = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((), tf.float32))
    data = tf.data.Dataset.from_generator(rows_that_deadlock, output_signature=spec)
    if KIND != "input":
        data = data.take(12 * 8).cache()
    data = data.batch(12, drop_remainder=True)
    callbacks = [Culprit(), FaultTolerantCheckpoint(DIRECTORY / "checkpoints")]
    model.fit(data, epochs=2, verbose=0, callbacks=callbacks)
    print("trained", flush=True)


if __name__ == "__main__":
    tfdist.run(train)
