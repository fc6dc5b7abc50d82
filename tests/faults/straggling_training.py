"""The training of test_stragglers.py. Arguments: a directory; a plan as JSON.

The plan: `kind` (`compute`, `input`, `other`, `rows`, `speed`, `work` or `none`), `worker`, the task that is slow,
`seconds`, `rebalance`, `epochs`, `window_steps`, and `units` of a hidden layer, whose gradients are five numbers each.
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
TASK = os.environ.get("STRAGGLING_TASK") or os.environ.get("TFDIST_TASK", "alone")
KIND = PLAN["kind"] if PLAN.get("worker") == TASK else "none"
ROWS = 24
LEDGER = open(DIRECTORY / f"ledger {TASK}", "w")  # noqa: SIM115 - closed after training


def take_time(value=None):
    time.sleep(PLAN.get("seconds", 0.03))
    return value


def slowly(value):
    slow = tf.numpy_function(take_time, [value], value.dtype)
    slow.set_shape(value.shape)
    return slow


class Slow(keras.layers.Layer):
    """Slow on one worker; or, where none is to be slow, on all alike: then what else the machine does weighs little."""

    def call(self, inputs):
        is_slow = KIND == "compute" or PLAN["kind"] == "none"
        return inputs + 0.0 * tf.stop_gradient(slowly(inputs)) if is_slow else inputs


class Work(keras.layers.Layer):
    """Computes as long as it has rows: real work, for what slows down the whole process."""

    def call(self, inputs):
        matrix = tf.ones((len(inputs) if inputs.shape[0] else tf.shape(inputs)[0], 400, 400)) / 400
        worked = tf.reduce_sum(tf.linalg.matmul(matrix, matrix), axis=[1, 2])[:, None]
        return inputs + tf.stop_gradient(0.001 * worked)


class Notes(keras.callbacks.Callback):
    """Says when the second epoch begins, in which nothing is traced, and whom the monitor has called slow."""

    def __init__(self, monitor):
        super().__init__()
        self.monitor, self.alarms = monitor, []

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            (DIRECTORY / f"begun {TASK}").touch()

    def on_train_batch_end(self, batch, logs=None):
        judgement = self.monitor.judgement
        now = [] if judgement is None else [[each.worker, each.part] for each in judgement.stragglers]
        self.alarms += [each for each in now if each not in self.alarms]


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
    """5 ms a row, 10 on a worker of half the speed. The rows' ids, which are their first numbers, go to a ledger."""

    def call(self, inputs, training=False):
        if PLAN["kind"] not in ("rows", "speed") or not training:
            return inputs

        def compute(x):
            LEDGER.write(" ".join(str(round(number)) for number in x[:, 0] * ROWS * 40) + "\n")
            time.sleep((0.01 if KIND == "speed" else 0.005) * len(x))
            return x

        waited = tf.numpy_function(compute, [inputs], tf.float32)
        waited.set_shape(inputs.shape)
        return inputs + 0.0 * tf.stop_gradient(waited)


def train():
    strategy = tfdist.auto_strategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), Slow(), AsLongAsItHasRows()])
        if PLAN["kind"] == "work":
            model.add(Work())
        if "units" in PLAN:
            model.add(keras.layers.Dense(PLAN["units"]))
        model.add(keras.layers.Dense(1))
        model.compile("sgd", "mse")
    if PLAN["kind"] == "rows":
        data = strategy.distribute_datasets_from_function(own_rows)
    else:
        x = np.random.default_rng(1).normal(size=(ROWS * 40, 4)).astype("float32")
        x[:, 0] = np.arange(len(x)) / len(x)
        data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(ROWS).repeat()
        if KIND == "input":
            data = data.map(lambda x, y: (slowly(x), y))
    monitor = LoadBalanceMonitor(window_steps=PLAN.get("window_steps", 10), rebalance=PLAN.get("rebalance", False))
    notes = Notes(monitor)
    callbacks = [monitor, notes, *([SlowAtEachStep()] if PLAN["kind"] == "other" else [])]
    model.fit(data, epochs=PLAN.get("epochs", 3), steps_per_epoch=40, verbose=0, callbacks=callbacks)
    np.savez(DIRECTORY / f"weights {TASK}.npz", *model.get_weights())
    if PLAN.get("rebalance"):
        model.fit(data, steps_per_epoch=1, verbose=0)
    LEDGER.close()
    if TASK == "alone":
        return
    judgement = monitor.judgement
    found = [[each.worker, each.part, each.cost.without_s, each.cost.step_s] for each in judgement.stragglers]
    window = judgement.window
    said = {
        "stragglers": found,
        "alarms": notes.alarms,
        "step": window.step,
        "rows": window.rows,
        "report": str(monitor.report()),
    }
    (DIRECTORY / TASK).write_text(json.dumps(said))


if __name__ == "__main__":
    tfdist.run(train)
