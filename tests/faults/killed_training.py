"""The training that test_killed_training.py kills: each task runs this file as its program.

Arguments: the directory for checkpoints, results and ledgers; the kind of strategy; a plan of what to kill, as JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.callbacks import FaultTolerantCheckpoint
from tfdist.storage.files import LocalFiles

ROWS, BATCH, EPOCHS = 44, 8, 8
DIRECTORY, KIND, PLAN = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
TASK = os.environ.get("TFDIST_TASK", "worker 0")


def die(where):
    (DIRECTORY / f"killed {PLAN['life']} {TASK}").write_text(where)
    os.kill(os.getpid(), signal.SIGKILL)


def is_victim():
    return PLAN.get("task") in (TASK, "all")


class KillAfterSteps(keras.callbacks.Callback):
    seen = 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if is_victim() and self.seen == PLAN.get("signal_after"):
            (DIRECTORY / f"killed {PLAN['life']} {TASK}").write_text(f"signal after {self.seen}")
            os.kill(os.getpid(), signal.SIGTERM)
        if is_victim() and self.seen == PLAN.get("steps"):
            die(f"after step {int(self.model.optimizer.iterations.numpy())}")


def kill_in_a_save():
    """Makes the n-th change to the checkpoints' files the last thing that the process does."""
    count = 0

    def counted(name, original):
        def method(self, path, *args):
            nonlocal count
            count += 1
            if count == PLAN["operation"]:
                if name == "write":  # half of it is there
                    data = b"".join(args[0])
                    original(self, path, [data[: len(data) // 2]])
                die(f"in {name} of {Path(path).name}")
            return original(self, path, *args)

        return method

    for name in ("make_dir", "write", "sync_file", "sync_dir", "remove_file", "remove_dir"):
        setattr(LocalFiles, name, counted(name, getattr(LocalFiles, name)))


LEDGER = os.open(DIRECTORY / f"ledger {PLAN['life']} {TASK}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)


def note_ids(step, ids):
    os.write(LEDGER, f"{int(step)}: {' '.join(str(int(i)) for i in ids)}\n".encode())
    return np.int64(0)


class Recorded(keras.Model):
    """Its targets are (target, id of the row)."""

    def train_step(self, data):
        x, targets = data
        tf.numpy_function(note_ids, [self.optimizer.iterations.value, targets[:, 1]], tf.int64)
        return super().train_step((x, targets[:, :1]))


def dataset():
    random = np.random.default_rng(7)
    x = random.normal(size=(ROWS, 5)).astype("float32")
    y = (x[:, :1] * 2 + random.normal(size=(ROWS, 1)) * 0.3).astype("float32")
    targets = np.concatenate([y, np.arange(ROWS, dtype="float32")[:, None]], axis=1)
    rows = tf.data.Dataset.from_tensor_slices((x, targets)).shuffle(20, seed=5)
    return rows.batch(BATCH).map(lambda a, b: (a * 1.5, b), num_parallel_calls=2).prefetch(2)


def dataset_of_a_worker(context):
    share = dataset().unbatch().shard(context.num_input_pipelines, context.input_pipeline_id)
    return share.batch(BATCH // context.num_replicas_in_sync).prefetch(2)


def build():
    inputs = keras.layers.Input((5,))
    hidden = keras.layers.Dense(8, activation="relu")(inputs)
    if not PLAN.get("plain"):
        hidden = keras.layers.BatchNormalization()(hidden)
        hidden = keras.layers.Dropout(0.3)(hidden)
    model = Recorded(inputs, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae"])
    return model


def make_strategy():
    if KIND == "none":
        return None
    if KIND == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        return tfdist.mirrored_strategy(["CPU:0", "CPU:1"])
    return tfdist.multi_worker_mirrored_strategy()


def train():
    keras.utils.set_random_seed(3)
    strategy = make_strategy()
    if strategy is None:
        model = build()
    else:
        with strategy.scope():
            model = build()
    if PLAN.get("operation") and is_victim():
        kill_in_a_save()
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True),
        FaultTolerantCheckpoint(DIRECTORY / "checkpoints", save_interval_steps=2),
        KillAfterSteps(),
    ]
    data = dataset_of_a_worker if PLAN.get("function") else dataset()
    history = model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks, shuffle=False)
    if TASK == "worker 0":
        arrays = {f"weight {i}": value for i, value in enumerate(model.get_weights())}
        arrays |= {f"optimizer {i}": variable.numpy() for i, variable in enumerate(model.optimizer.variables)}
        arrays |= {f"history {name}": np.array(values) for name, values in history.history.items()}
        np.savez(DIRECTORY / "result.npz", epochs=np.array(history.epoch), **arrays)
    print("trained", flush=True)


if __name__ == "__main__":
    tfdist.run(train)
