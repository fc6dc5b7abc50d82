"""Small trainings with everything that has a state, and their interruption."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

import tfdist
from tfdist.callbacks import FaultTolerantCheckpoint, fault_tolerant_checkpoint

ROWS, BATCH = 44, 8
STEPS = 6  # the last batch has 4 rows


class Killed(SystemExit):
    pass


class KillAt(keras.callbacks.Callback):
    """Ends training after so many steps, without a word to anybody."""

    def __init__(self, step):
        super().__init__()
        self.left = step

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise Killed


class Decay(keras.callbacks.Callback):
    """Changes what an epoch begins with, by what it was before."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.learning_rate = float(self.model.optimizer.learning_rate.numpy()) * 0.9


class Counter(keras.callbacks.Callback):
    """Has a state of its own."""

    def __init__(self):
        super().__init__()
        self.seen = {"batches": 0, "losses": np.zeros(0)}

    def on_epoch_end(self, epoch, logs=None):
        self.seen["batches"] += 1
        self.seen["losses"] = np.append(self.seen["losses"], logs["loss"])

    def get_state(self):
        return self.seen

    def set_state(self, state):
        self.seen = state


def arrays():
    random = np.random.default_rng(7)
    x = random.normal(size=(ROWS, 5)).astype("float32")
    return x, (x[:, :1] * 2 + random.normal(size=(ROWS, 1)) * 0.3).astype("float32")


def build(optimizer=None):
    model = keras.Sequential(
        [
            keras.layers.Input((5,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer or keras.optimizers.Adam(0.02), "mse", metrics=["mae"])
    return model


def usual_callbacks():
    return [
        keras.callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", patience=1, factor=0.7),
        Decay(),
        Counter(),
    ]


def strategy_of(kind):
    if kind == "mirrored":
        return tfdist.mirrored_strategy(["CPU:0", "CPU:1"])
    return contextlib.nullcontext()


class Training:
    """One process's life: what a script does from its begin on."""

    def __init__(self, kind="none", data=None, build=build, callbacks=usual_callbacks, seed=3, **fit):
        fault_tolerant_checkpoint._num_fits.clear()
        keras.backend.clear_session()
        if seed is not None:
            keras.utils.set_random_seed(seed)
        strategy = strategy_of(kind)
        with strategy.scope() if hasattr(strategy, "scope") else strategy:
            self.model = build()
        self.callbacks = callbacks()
        self.fit_arguments = {"epochs": 4, "verbose": 0, **fit}
        self.data = (data or (lambda: (*arrays(), {"batch_size": BATCH})))()

    def run(self, *extra, kill_at=None):
        *data, keywords = self.data
        kill = [] if kill_at is None else [KillAt(kill_at)]
        arguments = {**self.fit_arguments, **keywords}
        self.history = self.model.fit(*data, callbacks=[*self.callbacks, *extra, *kill], **arguments)
        return self

    def result(self):
        model = self.model
        found = {f"weight {i}": v for i, v in enumerate(model.get_weights())}
        found |= {f"optimizer {i}": np.array(v) for i, v in enumerate(model.optimizer.variables)}
        found |= {f"history {name}": np.array(v) for name, v in self.history.history.items()}
        found["epochs"] = np.array(self.history.epoch)
        return found


def killed(training, checkpoint, step):
    try:
        training.run(checkpoint, kill_at=step)
    except Killed:
        return
    raise AssertionError("training ended before it was killed")


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


def checkpoint(directory, **keywords):
    return FaultTolerantCheckpoint(directory, **keywords)


def shuffled_dataset(seed=5):
    x, y = arrays()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(16, seed=seed)
    return dataset.batch(BATCH).map(lambda a, b: (a * 1.5, b), num_parallel_calls=2).prefetch(2), {"shuffle": False}
