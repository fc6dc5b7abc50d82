"""The training of test_step_timings.py.

Arguments: a directory; what is slow on worker 1, `input` or `compute`; the transport.
"""

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

DIRECTORY, SLOW, TRANSPORT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
TASK = os.environ["TFDIST_TASK"]
SLEEP_S = 0.2


def slowly(value):
    time.sleep(SLEEP_S)
    return value


class SlowLayer(keras.layers.Layer):
    def call(self, inputs):
        if SLOW == "compute" and TASK == "worker 1":
            slow = tf.numpy_function(slowly, [inputs], tf.float32)
            slow.set_shape(inputs.shape)
            return inputs + 0.0 * tf.stop_gradient(slow)
        return inputs


class NeedsTimings(keras.callbacks.Callback):
    needs_timings = True


def train():
    with tfdist.multi_worker_mirrored_strategy(transport=TRANSPORT).scope():
        model = keras.Sequential([keras.layers.Input((4,)), SlowLayer(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones((64, 4), "float32"), np.ones((64, 1), "float32"))).batch(8)
    if SLOW == "input" and TASK == "worker 1":
        data = data.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(slowly, [x], tf.float32), (None, 4)), y))
    tables = []
    exchange_of(model.distribute_strategy).timings.observers.append(lambda table: tables.append(table.tolist()))
    model.fit(data, epochs=2, verbose=0, callbacks=[NeedsTimings()])
    (DIRECTORY / TASK).write_text(json.dumps(tables))


if __name__ == "__main__":
    tfdist.run(train)
