"""The training of test_step_timings.py. Arguments: a directory; what is slow on worker 1, `input` or `step`."""

import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.keras_compat.managed_strategies import exchange_of

DIRECTORY, SLOW = Path(sys.argv[1]), sys.argv[2]
TASK = os.environ["TFDIST_TASK"]
SLEEP_S = 0.2


def slowly(value):
    time.sleep(SLEEP_S)
    return value


class SlowLayer(keras.layers.Layer):
    def call(self, inputs):
        if SLOW == "step" and TASK == "worker 1":
            slow = tf.numpy_function(slowly, [inputs], tf.float32)
            slow.set_shape(inputs.shape)
            return inputs + 0.0 * tf.stop_gradient(slow)
        return inputs


class Record(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.tables = []

    def on_train_batch_end(self, batch, logs=None):
        self.tables.append(exchange_of(self.model.distribute_strategy).timings.latest.tolist())


def train():
    with tfdist.auto_strategy().scope():
        model = keras.Sequential([keras.layers.Input((4,)), SlowLayer(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones((64, 4), "float32"), np.ones((64, 1), "float32"))).batch(8)
    if SLOW == "input" and TASK == "worker 1":
        data = data.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(slowly, [x], tf.float32), (None, 4)), y))
    record = Record()
    model.fit(data, epochs=2, verbose=0, callbacks=[record])
    (DIRECTORY / TASK).write_text(json.dumps(record.tables))


if __name__ == "__main__":
    tfdist.run(train)
