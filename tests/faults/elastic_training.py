"""The training of test_elastic_training.py: each worker runs this file as its program.

Arguments: the directory for ledgers, results and checkpoints; a plan as JSON.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.callbacks import FaultTolerantCheckpoint
from tfdist.keras_compat.managed_strategies import elastic_group

DIRECTORY, PLAN = Path(sys.argv[1]), json.loads(sys.argv[2])
ROWS, BATCH, EPOCHS = PLAN.get("rows", 90), 12, PLAN.get("epochs", 6)
TASK = os.environ.get("TFDIST_TASK", "alone")
NAME = f"{TASK} {os.getpid()}"
LEDGER = os.open(DIRECTORY / f"ledger {NAME}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)


def note(**what):
    os.write(LEDGER, (json.dumps({**what, "at": time.monotonic()}) + "\n").encode())


class Recorded(keras.Model):
    """Its targets are (target, id of the row)."""

    def train_step(self, data):
        x, targets = data
        group = elastic_group(self.distribute_strategy)

        def note_ids(step, ids):
            kill_once_at(step, PLAN.get("kills_within", {}))
            note(
                step=int(step),
                ids=[int(i) for i in ids],
                round=-1 if group is None else group.number,
                members=1 if group is None else group.num_members,
            )
            return np.int64(0)

        with tf.control_dependencies(
            [tf.numpy_function(note_ids, [self.optimizer.iterations.value, targets[:, 1]], tf.int64)]
        ):
            x = tf.identity(x)
        return super().train_step((x, targets[:, :1]))


def kill_once_at(step, kills):
    marker = DIRECTORY / f"killed {TASK}"
    if kills.get(TASK) == int(step) and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class CountsSteps(keras.layers.Layer):
    """Assigns before the exchange of a step what does not depend on the rows."""

    def build(self, _):
        self.count = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.count.assign_add(1)
        return inputs


class Slowly(keras.callbacks.Callback):
    """Gives the test time to kill somebody, or kills between two steps."""

    def on_train_batch_end(self, batch, logs=None):
        group = elastic_group(self.model.distribute_strategy)
        # A process that is started again takes long on a busy machine: until it is there, steps are slow.
        is_waiting = group is not None and group.num_members < PLAN.get("members", 0)
        time.sleep(1.5 if is_waiting else PLAN.get("sleep_s", 0.0))
        kill_once_at(self.model.optimizer.iterations.numpy(), PLAN.get("kills", {}))


def dataset(seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 5)).astype("float32")
    y = (x[:, :1] * 2 + random.normal(size=(ROWS, 1)) * 0.3).astype("float32")
    targets = np.concatenate([y, np.arange(ROWS, dtype="float32")[:, None]], axis=1)
    rows = tf.data.Dataset.from_tensor_slices((x, targets)).shuffle(40)
    return rows.batch(BATCH).prefetch(2)


def build():
    inputs = keras.layers.Input((5,))
    hidden = keras.layers.Dense(16, activation="tanh")(inputs)
    hidden = CountsSteps()(hidden)
    hidden = keras.layers.BatchNormalization(synchronized=True)(hidden)
    model = Recorded(inputs, keras.layers.Dense(1)(hidden))
    optimizer = keras.optimizers.SGD(0.02, momentum=0.9) if PLAN.get("sgd", True) else keras.optimizers.Adam(0.01)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def train():
    strategy = tfdist.auto_strategy()
    group = elastic_group(strategy)
    # The first member's initial values are those of all.
    keras.utils.set_random_seed(3 if group is None or group.rank == 0 else 1000 + group.rank)
    with strategy.scope():
        model = build()
    tf.random.set_seed(5)
    data, held_out = dataset(7), dataset(8).take(3).cache()
    held_out = held_out.map(lambda x, targets: (x, targets[:, :1]))
    callbacks = [Slowly()]
    if PLAN.get("checkpoints", True):
        callbacks.append(
            FaultTolerantCheckpoint(
                DIRECTORY / "checkpoints", save_each_epoch=False, save_interval_steps=PLAN.get("save_interval_steps")
            )
        )
    history = model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks, validation_data=held_out)
    final = model.evaluate(held_out, verbose=0, return_dict=True)
    outputs = model.predict(held_out.map(lambda x, y: x), verbose=0)
    arrays = {f"weight {i}": value for i, value in enumerate(model.get_weights())}
    arrays |= {f"optimizer {i}": variable.numpy() for i, variable in enumerate(model.optimizer.variables)}
    arrays |= {f"history {name}": np.array(values) for name, values in history.history.items()}
    arrays |= {f"final {name}": np.array(value) for name, value in final.items()}
    np.savez(DIRECTORY / f"result {NAME}.npz", outputs=outputs, **arrays)
    print("trained", flush=True)


if __name__ == "__main__":
    tfdist.run(train)
