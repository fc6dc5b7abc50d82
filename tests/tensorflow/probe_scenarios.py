"""For each override a scenario that fails when it is taken away.

A scenario is a function of a strategy that a tfdist factory made. It raises, an AssertionError or what Keras raises,
where Keras is not mended. `run_probes.py` runs it with everything installed, when it must pass, and then without the
override, when it must fail as `fails_with` says: on the day Keras is mended it passes, and the override can go.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Probe:
    """How an override is probed.

    Attributes:
        label: The override's label.
        run: The scenario.
        on: `mirrored` (two devices), `multi` (two workers) or `ps` (two workers, two parameter servers).
        fails_with: Pattern of `ErrorType: message` without the override.
        stock: Whether all overrides are taken away; otherwise this one alone, where stock Keras fails before.
        passes_on: Versions of Keras (`major.minor`) on which the scenario passes without the override.
    """

    label: str
    run: Callable[[Any], None]
    on: str
    fails_with: str
    stock: bool
    passes_on: tuple[str, ...] = ()


PROBES: dict[str, Probe] = {}


def probe(label, *, on, fails_with, stock=True, passes_on=()):
    """Registers a scenario."""

    def add(run):
        assert label not in PROBES, label
        PROBES[label] = Probe(label, run, on, fails_with, stock, passes_on)
        return run

    return add


def rows(count=8, features=4):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, features)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def model_of(strategy, *layers, optimizer=None, loss="mse", features=4, metrics=None, **compile_arguments):
    with strategy.scope():
        made = [make() for make in layers] or [keras.layers.Dense(1, kernel_initializer="ones")]
        model = keras.Sequential([keras.layers.Input((features,)), *made])
        model.compile(
            optimizer() if optimizer else keras.optimizers.SGD(0.1), loss, metrics=metrics, **compile_arguments
        )
    return model


def toy_fit(strategy, optimizer, batch_size=4, y=(10.0, 0.0, 0.0, 0.0), loss="mse"):
    """y = w x from w = 1; returns w after one epoch, and the loss."""
    model = model_of(
        strategy,
        lambda: keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
        optimizer=optimizer,
        features=1,
        loss=loss,
    )
    x = np.arange(1, len(y) + 1, dtype="float32")[:, None]
    data = tf.data.Dataset.from_tensor_slices((x, np.array(y, "float32")[:, None])).batch(batch_size)
    history = model.fit(data, verbose=0)
    return float(model.get_weights()[0][0, 0]), history.history["loss"][0]


def close(got, right):
    np.testing.assert_allclose(got, right, rtol=1e-5)


def is_chief(strategy):
    return strategy.cluster_resolver.task_id == 0


def directory():
    """Empty at the start of a scenario, and common to all tasks."""
    return Path(os.environ["PROBE_DIRECTORY"])


def leave_note(text):
    (directory() / f"{text}.note").touch()


def wait_for_note(text, limit_s=60.0):
    """Returns whether another task has left the note in time."""
    deadline = time.monotonic() + limit_s
    while not (directory() / f"{text}.note").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# --- Variables


class ShiftedMean(keras.layers.Layer):
    """Keeps the mean of its inputs, as a layer with state does."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(), initializer="zeros", trainable=False, name="mean")

    def call(self, x):
        self.mean.assign(keras.ops.mean(x))
        return x


@probe(
    "CollectiveAllReduceExtended._get_variable_creator_initial_value",
    on="multi",
    stock=False,
    fails_with="InvalidArgumentError: Value for attr 'T' of (bfloat16|uint8|int8)",
)
def dtypes_that_are_not_broadcast(strategy):
    own = 1 + strategy.cluster_resolver.task_id
    with strategy.scope():
        for dtype in ("bfloat16", "uint8", "int8", "uint16", "int16", "uint32", "uint64"):
            made = [
                tf.Variable(tf.cast([own, 7], dtype)),
                tf.Variable(lambda d=dtype: tf.cast([own, 7], d), dtype=dtype),
                keras.Variable(lambda shape, dtype: tf.cast([own, 7], dtype), shape=(2,), dtype=dtype),
            ]
            for variable in made:
                value = strategy.experimental_local_results(
                    variable.value if isinstance(variable, keras.Variable) else variable
                )[0]
                assert value.dtype == dtype, (value.dtype, dtype)
                assert tf.cast(value, "float32").numpy().tolist() == [1, 7], f"{dtype}: not the chief's {value}"


@probe("Variable._direct_assign", on="multi", stock=False, fails_with="")
def assign_in_call(strategy):
    model = model_of(strategy, lambda: ShiftedMean(name="shifted"), lambda: keras.layers.Dense(1))
    x, y = rows()
    model.fit(x, y, batch_size=8, verbose=0)
    close(model.get_layer("shifted").mean.numpy(), x.mean())


class Counter(keras.layers.Layer):
    """Counts by many small steps, so that two workers at once are sure to meet."""

    def __init__(self, method, step):
        super().__init__()
        self.method, self.step = method, step

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x):
        for _ in range(50):
            getattr(self.count, self.method)(self.step)
        return x


def _count(strategy, method):
    model = model_of(strategy, lambda: Counter(method, 1.0), lambda: keras.layers.Dense(1))
    x, y = rows(32)
    model.fit(x, y, batch_size=1, verbose=0)
    assert abs(float(model.layers[0].count.numpy())) == 50 * 32


@probe("Variable.assign_add", on="ps", stock=False, fails_with="AssertionError")
def concurrent_additions(strategy):
    _count(strategy, "assign_add")


@probe("Variable.assign_sub", on="ps", stock=False, fails_with="AssertionError")
def concurrent_subtractions(strategy):
    _count(strategy, "assign_sub")


def partitioned_model(strategy, optimizer=None):
    """Its embedding table lies on two parameter servers."""
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((3,), dtype="int64"),
                keras.layers.Embedding(10, 2),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer() if optimizer else keras.optimizers.SGD(0.1), "mse")
    tokens = np.arange(24).reshape(8, 3) % 10
    return model, tokens, tokens.sum(axis=1, keepdims=True).astype("float32")


@probe("backend.tensorflow.numpy.take", on="ps", stock=False, fails_with="AssertionError: the whole table")
def look_up_in_a_partitioned_table(strategy):
    model, tokens, _ = partitioned_model(strategy)
    table = model.layers[0].embeddings

    @tf.function
    def look_up(indices):
        return keras.ops.take(table, indices, axis=0)

    operations = look_up.get_concrete_function(tf.constant(tokens)).graph.get_operations()
    assert not any(op.type == "ReadVariableOp" for op in operations), "the whole table is read"


def _train_partitioned(strategy, optimizer=None):
    model, tokens, y = partitioned_model(strategy, optimizer)
    before = model.get_weights()[0]
    model.fit(tokens, y, batch_size=4, verbose=0)
    assert (model.get_weights()[0] != before).any()


@probe("GradientTape.gradient", on="ps", stock=False, fails_with="")
def gradient_of_a_partitioned_variable(strategy):
    _train_partitioned(strategy)


@probe("TFOptimizer._var_key", on="ps", stock=False, fails_with="")
def key_of_a_partitioned_variable(strategy):
    _train_partitioned(strategy, lambda: keras.optimizers.Adam(0.1))


@probe("TFOptimizer.add_variable_from_reference", on="ps", stock=False, fails_with="")
def slot_of_a_partitioned_variable(strategy):
    _train_partitioned(strategy, lambda: keras.optimizers.SGD(0.1, momentum=0.9))


@probe("Variable.value", on="ps", stock=False, fails_with="")
def update_of_one_shard(strategy):
    _train_partitioned(strategy, lambda: keras.optimizers.Adam(0.1))


@probe("Variable.__int__", on="mirrored", stock=False, fails_with="TypeError")
def number_of_steps(strategy):
    assert int(model_of(strategy).optimizer.iterations) == 0


@probe("Variable.__float__", on="mirrored", stock=False, fails_with="TypeError")
def learning_rate(strategy):
    close(float(model_of(strategy).optimizer.learning_rate), 0.1)


# --- Losses


@probe("losses.loss.scale_loss_for_distribution", on="mirrored", stock=False, fails_with="AssertionError")
def gradient_of_uneven_shares(strategy):
    close(toy_fit(strategy, lambda: keras.optimizers.SGD(0.1), batch_size=3, y=(10.0, 0.0, 0.0))[0], 1 - 0.1 * 8 / 3)


@probe("losses.loss.unscale_loss_for_distribution", on="mirrored", stock=False, fails_with="AssertionError")
def logged_loss_of_uneven_shares(strategy):
    close(toy_fit(strategy, lambda: keras.optimizers.SGD(0.0), batch_size=3, y=(10.0, 0.0, 0.0))[1], (81 + 4 + 9) / 3)


@probe("losses.loss.reduce_values", on="mirrored", stock=False, fails_with="AssertionError")
def loss_that_is_a_scalar(strategy):
    def mean_of_squares(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred))

    close(toy_fit(strategy, lambda: keras.optimizers.SGD(0.1), loss=mean_of_squares), (0.0, 27.5))


@probe("losses.loss.apply_mask", on="mirrored", stock=False, fails_with="AssertionError")
def masked_loss(strategy):
    with strategy.scope():
        inputs = keras.Input((2,), dtype="int32")
        layers = [keras.layers.Embedding(3, 1, mask_zero=True, embeddings_initializer="ones"), keras.layers.Identity()]
        model = keras.Model(inputs, layers[1](layers[0](inputs)))
        model.compile(keras.optimizers.SGD(0.0), "mse")
    tokens, y = np.array([[1, 1], [1, 0]]), np.array([[1.0, 1.0], [4.0, 9.0]])[..., None]
    close(model.fit(tokens, y, batch_size=2, shuffle=False, verbose=0).history["loss"], 9 / 3)  # not (0 + 9) / 2


@probe("Loss.__call__", on="mirrored", stock=False, fails_with="AssertionError: worked out on a share")
def loss_that_mixes_rows(strategy):
    from tfdist.errors import UnsupportedError

    x, y = rows()
    model = model_of(strategy, lambda: keras.layers.Dense(1, activation="sigmoid"), loss=keras.losses.Dice())
    try:
        model.fit(x, (y > 0).astype("float32"), verbose=0)
    except UnsupportedError:
        return
    raise AssertionError("worked out on a share")


@probe("CompileLoss.call", on="mirrored", stock=False, fails_with="AssertionError")
def losses_of_two_outputs(strategy):
    with strategy.scope():
        inputs = keras.Input((1,))
        model = keras.Model(inputs, {name: keras.layers.Identity(name=name)(inputs) for name in "ab"})
        model.compile(keras.optimizers.SGD(0.0), {"a": "mse", "b": "mae"})
    x = np.array([[1.0], [2.0], [4.0]])
    zeros = {name: np.zeros((3, 1)) for name in "ab"}
    data = tf.data.Dataset.from_tensor_slices((x, zeros)).batch(3)
    close(model.evaluate(data, return_dict=True, verbose=0)["b_loss"], 7 / 3)


class LoggedLoss(keras.Model):
    """Returns the loss, as it is and as a mean of its own."""

    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean(name="mean")
        self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", kernel_regularizer="l2")

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, data):
        x, y = data
        loss = self.compute_loss(y=y, y_pred=self(x))
        self.mean.update_state(loss)
        return {"own": loss, "mean": self.mean.result()}


def log_a_loss(strategy, name):
    with strategy.scope():
        model = LoggedLoss()
        model.compile(keras.optimizers.SGD(0.0), "mse")
    x = np.array([[1.0], [2.0], [4.0]])
    history = model.fit(tf.data.Dataset.from_tensor_slices((x, 0 * x)).batch(3), verbose=0).history
    close(history[name], 7.01)


@probe("Trainer.compute_loss", on="mirrored", stock=False, fails_with="AssertionError")
def loss_of_compute_loss_that_a_step_returns(strategy):
    log_a_loss(strategy, "own")


@probe("Mean.update_state", on="mirrored", stock=False, fails_with="AssertionError")
def mean_of_a_loss(strategy):
    log_a_loss(strategy, "mean")


@probe("SeedGenerator.next", on="mirrored", stock=False, fails_with="AssertionError: the same mask")
def dropout_masks(strategy):
    model = model_of(strategy, lambda: AlwaysDropout(0.5, seed=1), features=64)
    first, second = model.predict(np.ones((2, 64), "float32"), batch_size=2, verbose=0)
    assert (first != second).any(), "the same mask"


class AlwaysDropout(keras.layers.Dropout):
    """Drops out when it predicts, too."""

    def call(self, inputs, training=None):
        del training
        return super().call(inputs, training=True)


@probe("backend.tensorflow.nn._compute_moments_sync", on="mirrored", stock=False, fails_with="AssertionError")
def synchronized_moments_of_numbers_far_from_zero(strategy):
    """A replica without a row differs from its stand-in only where there are more than two replicas."""
    with strategy.scope():
        layer = keras.layers.BatchNormalization(synchronized=True, momentum=0.0)
        model = keras.Sequential([keras.layers.Input((1,)), layer])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x = np.asarray([[10000.0], [10002.0]], "float32")
    model.fit(x, x, batch_size=2, epochs=1, verbose=0)
    close(layer.moving_mean.numpy(), [10001.0])
    close(layer.moving_variance.numpy(), [1.0])


# --- Optimizers


@probe("BaseOptimizer.apply", on="mirrored", fails_with="AssertionError")
def clip_the_global_gradient(strategy):
    close(toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, clipnorm=1.0))[0], 0.9)


@probe("LossScaleOptimizer.apply", on="mirrored", stock=False, fails_with="")
def one_replica_overflows(strategy):
    w, _ = toy_fit(
        strategy,
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4.0),
        y=(10.0, 0.0, np.inf, 0.0),
    )
    assert w == 1.0


@probe("LossScaleOptimizer._tf_apply", on="mirrored", stock=False, fails_with="AssertionError")
def loss_scale_where_tensorflow_needs_a_merge_call(strategy):
    """TensorFlow updates variables without `merge_call` where replicas exchange through collectives; not so here."""
    import tfdist

    strategy = tfdist.mirrored_strategy(cross_device_ops=tf.distribute.ReductionToOneDevice())
    optimizer = keras.optimizers.LossScaleOptimizer
    w, _ = toy_fit(strategy, lambda: optimizer(keras.optimizers.SGD(0.05), initial_scale=4.0))
    close(w, 0.5)


@probe("TFOptimizer._backend_update_step", on="mirrored", stock=False, fails_with="RuntimeError.*merge_call")
def accumulation_in_a_condition(strategy):
    toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), batch_size=2)


@probe("TFOptimizer._apply_weight_decay", on="mirrored", stock=False, fails_with="RuntimeError.*merge_call")
def weight_decay_in_a_condition(strategy):
    toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, weight_decay=0.1, gradient_accumulation_steps=2), batch_size=2)


@probe("TFOptimizer._backend_increment_gradient_accumulators", on="mirrored", stock=False, fails_with="merge_call")
def increment_accumulators(strategy):
    toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), batch_size=2)


@probe(
    "TFOptimizer._overwrite_model_variables_with_average_value",
    on="mirrored",
    fails_with="RuntimeError.*merge_call",
)
def overwrite_with_averages(strategy):
    toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=1))


# --- Trainer


@probe("TensorFlowTrainer._maybe_symbolic_build", on="multi", fails_with="")
def first_step(strategy):
    x, y = rows()
    model_of(strategy).fit(x, y, batch_size=4, verbose=0)


@probe("backend.tensorflow.trainer.TFEpochIterator", on="mirrored", fails_with="AddN")
def batches_that_do_not_divide(strategy):
    x, y = rows(6)
    model_of(strategy).fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(3), verbose=0)


@probe("TensorFlowTrainer.make_train_function", on="mirrored", fails_with="placeholder")
def several_steps_per_execution(strategy):
    x, y = rows()
    model_of(strategy, steps_per_execution=2).fit(x, y, batch_size=4, verbose=0)


class BatchLogs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_test_batch_end(self, batch, logs=None):
        self.seen.append(float(logs["root_mean_squared_error"]))


@probe(
    "TensorFlowTrainer.make_test_function",
    on="mirrored",
    fails_with="AssertionError.*Mismatched elements",
    passes_on=("3.8",),
)
def batch_logs_of_a_metric_that_is_not_a_mean(strategy):
    x, y = rows()
    with strategy.scope():
        metric = keras.metrics.RootMeanSquaredError()
    model, callback = model_of(strategy, metrics=[metric]), BatchLogs()
    model.evaluate(x, y + x[:, :1], batch_size=4, verbose=0, callbacks=[callback])
    close(callback.seen[0], np.sqrt(np.mean(x[:4, 0] ** 2)))


@probe("TensorFlowTrainer.make_predict_function", on="ps", fails_with="")
def predict_every_row(strategy):
    x, _ = rows(7)
    close(model_of(strategy).predict(x, batch_size=3, verbose=0), x.sum(axis=1, keepdims=True))


@probe("TensorFlowTrainer._get_metrics_result_or_logs", on="ps", stock=False, fails_with="")
def epoch_logs_have_every_step(strategy):
    x, y = rows(24)
    model = model_of(strategy, optimizer=lambda: keras.optimizers.SGD(0.0))
    history = model.fit(x, y + x[:, :1], batch_size=2, verbose=0)
    close(history.history["loss"][0], np.mean(x[:, 0] ** 2))


@probe(
    "TensorFlowTrainer.reset_metrics",
    on="multi",
    fails_with="AssertionError: a collective",
    stock=False,
    passes_on=("3.8",),
)
def reset_without_the_other_worker(strategy):
    model = model_of(strategy, metrics=["mae"])
    if is_chief(strategy):
        alone = threading.Thread(target=model.reset_metrics, daemon=True)
        alone.start()
        alone.join(5)
        was_alone = not alone.is_alive()
        leave_note("chief has reset")
        alone.join()
        assert was_alone, "a collective"
    else:
        wait_for_note("chief has reset")
        model.reset_metrics()


@probe("Trainer.compile", on="mirrored", fails_with="")
def compile_outside_of_the_scope(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x, y = rows()
    model.fit(x, y, batch_size=4, verbose=0)


def _refuses(strategy, method, *data):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    message = ""
    with strategy.scope():
        try:
            getattr(model, method)(*data, verbose=0)
        except Exception as error:
            message = str(error)
    assert "outside of strategy.scope()" in message, "no clear error"


@probe("TensorFlowTrainer.fit", on="mirrored", fails_with="AssertionError: no clear error")
def fit_of_a_model_outside_of_the_scope(strategy):
    _refuses(strategy, "fit", *rows())


@probe("TensorFlowTrainer.evaluate", on="mirrored", fails_with="AssertionError: no clear error")
def evaluate_of_a_model_outside_of_the_scope(strategy):
    _refuses(strategy, "evaluate", *rows())


@probe("TensorFlowTrainer.predict", on="mirrored", fails_with="AssertionError: no clear error")
def predict_of_a_model_outside_of_the_scope(strategy):
    _refuses(strategy, "predict", rows()[0])


# --- Saving

#: The second form is that of two workers which write the same file at the same moment.
EVERY_WORKER_WRITES = "AssertionError: every worker writes|BlockingIOError.*unable to lock file"


def _chief_writes(strategy, name, save):
    """The other worker saves first. It must leave the file to the chief."""
    path = directory() / name
    if is_chief(strategy):
        wait_for_note("saved by the other", limit_s=2.0)
        written = path.exists()
        save(path)
        assert not written, "every worker writes"
    else:
        save(path)
        leave_note("saved by the other")
    assert path.exists()


@probe("saving.saving_lib.save_model", on="multi", fails_with=EVERY_WORKER_WRITES)
def save_a_model(strategy):
    _chief_writes(strategy, "model.keras", model_of(strategy).save)


@probe("saving.saving_lib.save_weights_only", on="multi", fails_with=EVERY_WORKER_WRITES)
def save_weights(strategy):
    _chief_writes(strategy, "model.weights.h5", model_of(strategy).save_weights)


@probe("legacy.saving.legacy_h5_format.save_model_to_hdf5", on="multi", fails_with=EVERY_WORKER_WRITES)
def save_in_the_older_format(strategy):
    _chief_writes(strategy, "model.h5", model_of(strategy).save)


def _backup(strategy):
    callback = keras.callbacks.BackupAndRestore(directory() / "backup")
    callback.set_model(model_of(strategy))
    callback.on_train_begin()
    return callback


@probe("BackupAndRestore._save_model", on="multi", fails_with=EVERY_WORKER_WRITES)
def back_up(strategy):
    callback = _backup(strategy)
    _chief_writes(strategy, "backup/latest.weights.h5", lambda _: callback.on_epoch_end(0))


@probe("BackupAndRestore.on_train_end", on="multi", fails_with="AssertionError: removed by the other")
def remove_the_backup(strategy):
    callback = _backup(strategy)
    if is_chief(strategy):
        (directory() / "backup").mkdir(exist_ok=True)
        leave_note("the backup is there")
        assert wait_for_note("the other has ended")
        there = (directory() / "backup").exists()
        callback.on_train_end()
        leave_note("the chief has ended")
        assert there, "removed by the other"
    else:
        assert wait_for_note("the backup is there")
        callback.on_train_end()
        leave_note("the other has ended")
        assert wait_for_note("the chief has ended")
    assert not (directory() / "backup").exists()
