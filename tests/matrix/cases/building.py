"""What cases share: toy data, toy models, and what they report of a trained model."""

from __future__ import annotations

import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

ROWS = 21  # neither batches of 8 nor the last of 5 rows divide by all numbers of replicas
BATCH = 8


def is_single(strategy) -> bool:
    """Whether this is the oracle: one device, no strategy."""
    return not tf.distribute.has_strategy() and type(strategy).__name__ == "_DefaultDistributionStrategy"


def is_asynchronous(strategy) -> bool:
    return isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy)


def worker_position(strategy) -> tuple[int, int]:
    """(index, number) of the synchronous workers, from the strategy alone."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        resolver = strategy.cluster_resolver
        return resolver.task_id, len(resolver.cluster_spec().as_dict()["worker"])
    return 0, 1


def case_directory() -> Path:
    """A directory that all tasks of the job share, and that is empty when the case begins."""
    return Path(os.environ["MATRIX_CASE_DIRECTORY"])


def regression(rows=ROWS, seed=7):
    """Rows of a noisy linear function of four features."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    y = x @ np.array([[1.0], [-2.0], [0.5], [3.0]]) + 0.1 * rng.normal(size=(rows, 1))
    floatx = keras.config.floatx()
    return x.astype(floatx), y.astype(floatx)


def classification(rows=ROWS, classes=3, seed=8):
    """Rows around one centre for each class, with integer labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, size=rows)
    x = rng.normal(size=(classes, 4))[labels] * 2 + rng.normal(size=(rows, 4))
    return x.astype(keras.config.floatx()), labels.astype("int64")


class RowCount(keras.metrics.Metric):
    """Counts rows."""

    def __init__(self, name="rows", **kwargs):
        super().__init__(name=name, **kwargs)
        self.count = self.add_variable((), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(keras.ops.cast(keras.ops.shape(y_true)[0], self.count.dtype))

    def result(self):
        return self.count.value + 0


class RowSum(RowCount):
    """Sums the targets, or a power of them: equal sums of both show that each row came exactly once."""

    def __init__(self, name="row_sum", power=1, **kwargs):
        super().__init__(name=name, **kwargs)
        self.power = power

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(keras.ops.sum(keras.ops.cast(y_true, self.count.dtype) ** self.power))


COUNTS = ("rows", "row_sum", "row_sum_of_squares")


def fixed_weights(model, seed=3):
    """The same weights whatever the seeds and strategies: small random numbers from NumPy."""
    assert model.weights
    rng = np.random.default_rng(seed)
    new = []
    for variable in model.weights:
        if "seed" in variable.name or "int" in str(variable.dtype):
            new.append(np.asarray(variable.numpy()))
        elif "variance" in variable.name:
            new.append(rng.uniform(0.5, 1.5, size=variable.shape))
        else:
            new.append(rng.uniform(0.1, 0.6, size=variable.shape) * rng.choice([-1, 1], size=variable.shape))
    model.set_weights(new)


def dense_model(outputs=1, activation=None, **keywords):
    """A small network with weights that do not depend on seeds. To be called in a scope."""
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(5, activation="tanh", **keywords),
            keras.layers.Dense(outputs, activation=activation),
        ]
    )
    fixed_weights(model)
    return model


def compiled(strategy, optimizer=None, loss="mse", metrics=(), **compile_arguments):
    """`dense_model`, compiled in the scope; `optimizer` is made there by calling it."""
    with strategy.scope():
        model = dense_model()
        model.compile(
            optimizer() if optimizer else keras.optimizers.SGD(0.05),
            loss,
            metrics=[RowCount(), "mae", *(make() for make in metrics)],
            **compile_arguments,
        )
    return model


def build(strategy, *layers, shape=(4,), dtype=None, optimizer=None, loss="mse", metrics=()):
    """A compiled Sequential model of what `layers` make within the scope."""
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input(shape, dtype=dtype), *(make() for make in layers)])
        fixed_weights(model)
        model.compile(optimizer() if optimizer else keras.optimizers.SGD(0.02), loss, metrics=[RowCount(), *metrics])
    return model


def dataset(*arrays, batch=BATCH):
    """Batches of rows in their order."""
    return tf.data.Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0]).batch(batch)


def as_arrays(prefix, structure):
    """Flattens outputs of a model into named arrays."""
    leaves = tf.nest.flatten(structure)
    return {f"{prefix}/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def logs_of(history, prefix="sync"):
    """The logs of each epoch; counts are exact with every strategy."""
    found = {}
    for name, values in history.history.items():
        where = "always" if name.removeprefix("val_") in COUNTS else prefix
        found[f"{where}/history/{name}"] = np.asarray(values, "float64")
    return found


def state_of(model, prefix="sync"):
    """Weights, the optimizer's variables and its count of steps."""
    found = {f"{prefix}/weights/{i}": v.numpy() for i, v in enumerate(model.weights)}
    if model.optimizer is not None:
        found["always/iterations"] = np.asarray(int(model.optimizer.iterations.numpy()))
        for i, v in enumerate(model.optimizer.variables):
            found[f"{prefix}/optimizer/{i}"] = v.numpy()
    return found


def without_steps(found):
    """Leaves out the count of steps.

    With a dataset of unknown length stock Keras counts one step too many in each epoch: the one that finds no data.
    """
    return {name: v for name, v in found.items() if name not in ("always/iterations", "sync/optimizer/0")}


def outcome(model, history=None, x=None, y=None, *, prefix="sync", evaluate=None, predict=None):
    """What a case returns of a trained model.

    Args:
        model: The model.
        history: What `fit` returned.
        x, y: Arrays to evaluate and predict on, with the weights of `fixed_weights`, so that the numbers are exact
            however the training went. None leaves that out.
        prefix: `shape` when trained weights are not promised to be those of one device.
        evaluate: Further arguments of `evaluate`.
        predict: Further arguments of `predict`.
    """
    found = state_of(model, prefix)
    if history is not None:
        found |= logs_of(history, prefix)
    if x is not None:
        fixed_weights(model)
        values = model.evaluate(x, y, return_dict=True, verbose=0, **{"batch_size": BATCH, **(evaluate or {})})
        found |= {f"always/evaluate/{name}": np.asarray(value) for name, value in values.items()}
        found |= as_arrays("always/predict", model.predict(x, verbose=0, **{"batch_size": BATCH, **(predict or {})}))
    return found
