"""The training of test_stragglers.py. Arguments: a directory; a plan as JSON.

The plan: `kind` (`compute`, `input`, `other`, `rows` or `none`), `worker`, the task that is slow, and `seconds`.
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
from tfdist.callbacks import LoadBalanceMonitor

DIRECTORY, PLAN = Path(sys.argv[1]), json.loads(sys.argv[2])
KIND = PLAN["kind"] if os.environ["TFDIST_TASK"] == PLAN.get("worker") else "none"
ROWS = 24


def take_time(value=None):
    time.sleep(PLAN.get("seconds", 0.03))
    return value


def slowly(value):
    slow = tf.numpy_function(take_time, [value], value.dtype)
    slow.set_shape(value.shape)
    return slow


class Slow(keras.layers.Layer):
    def call(self, inputs):
        return inputs + 0.0 * tf.stop_gradient(slowly(inputs)) if KIND == "compute" else inputs


class SlowAtEachStep(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if KIND == "other":
            take_time()


def own_rows(context):
    """More rows on one worker, and a step that takes as long as it has rows."""
    rows = ROWS if KIND == "rows" else ROWS // 4
    data = tf.data.Dataset.from_tensor_slices((np.ones((rows, 4), "float32"), np.ones((rows, 1), "float32")))
    return data.batch(rows).repeat()


class AsLongAsItHasRows(keras.layers.Layer):
    def call(self, inputs):
        if PLAN["kind"] != "rows":
            return inputs
        waited = tf.numpy_function(lambda x: time.sleep(0.002 * len(x)) or x, [inputs], tf.float32)
        waited.set_shape(inputs.shape)
        return inputs + 0.0 * tf.stop_gradient(waited)


def train():
    strategy = tfdist.auto_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), Slow(), AsLongAsItHasRows(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    if PLAN["kind"] == "rows":
        data = strategy.distribute_datasets_from_function(own_rows)
    else:
        x = np.ones((ROWS * 40, 4), "float32")
        data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(ROWS).repeat()
        if KIND == "input":
            data = data.map(lambda x, y: (slowly(x), y))
    monitor = LoadBalanceMonitor(window_steps=10)
    callbacks = [monitor, *([SlowAtEachStep()] if PLAN["kind"] == "other" else [])]
    model.fit(data, epochs=3, steps_per_epoch=25, verbose=0, callbacks=callbacks)
    judgement = monitor.judgement
    found = [[each.worker, each.part, each.cost.without_s, each.cost.step_s] for each in judgement.stragglers]
    said = {"stragglers": found, "step": judgement.window.step, "report": str(monitor.report())}
    (DIRECTORY / os.environ["TFDIST_TASK"]).write_text(json.dumps(said))


if __name__ == "__main__":
    tfdist.run(train)
