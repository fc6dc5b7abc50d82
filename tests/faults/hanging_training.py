"""The training that test_hangs_of_jobs.py lets hang: `hanging_training.py DIRECTORY KIND CULPRIT STEP`."""

import os
import random
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
IS_CULPRIT = os.environ["TFDIST_TASK"] == sys.argv[3] and not (DIRECTORY / "hung").exists()
LATE = int(sys.argv[4])
BATCH, STEPS = 12, 12


def note():
    (DIRECTORY / "hung").write_text(str(time.monotonic()))


def spin_for_ever():
    while True:
        pass


def wait_for_ever():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def stop():
    note()
    os.kill(os.getpid(), signal.SIGSTOP)


class Culprit(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if not IS_CULPRIT or int(self.model.optimizer.iterations.numpy()) != LATE:
            return
        if KIND == "loop":
            note()
            spin_for_ever()
        if KIND == "stopped":
            stop()
        if KIND == "stopped anywhere":
            threading.Timer(random.random() / 50, stop).start()


def rows_of_input():
    for number in range(BATCH * STEPS):
        if IS_CULPRIT and number == BATCH * LATE and KIND.startswith("input"):
            note()
            (spin_for_ever if KIND == "input loop" else wait_for_ever)()
        yield np.full(4, number % 7, "float32"), np.float32(number % 5)


def called_in_the_step(value):
    called_in_the_step.count += 1
    if IS_CULPRIT and called_in_the_step.count > LATE and KIND.startswith("step"):
        note()
        (spin_for_ever if KIND == "step loop" else wait_for_ever)()
    return value


called_in_the_step.count = 0


class Calling(keras.layers.Layer):
    def call(self, inputs):
        outputs = tf.numpy_function(called_in_the_step, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return inputs + 0.0 * tf.stop_gradient(outputs)


def train():
    keras.utils.set_random_seed(1)
    strategy = tfdist.auto_strategy()
    with strategy.scope():
        layers = [keras.layers.Input((4,)), Calling(), keras.layers.Dense(4), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
    spec = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((), tf.float32))
    data = tf.data.Dataset.from_generator(rows_of_input, output_signature=spec).batch(BATCH, drop_remainder=True)
    # Slow enough for a stop at any moment of the steps that follow.
    slowly = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.01))
    callbacks = [slowly, Culprit(), FaultTolerantCheckpoint(DIRECTORY / "checkpoints")]
    model.fit(data, epochs=2, verbose=0, callbacks=callbacks)
    print("trained", flush=True)


if __name__ == "__main__":
    tfdist.run(train)
