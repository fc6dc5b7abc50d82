"""Input, models and optimizers that cannot be right: one clear error."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from table import case

from cases.building import (
    RowCount,
    compiled,
    dataset,
    is_single,
    outcome,
    regression,
)


def _single_row_batches(strategy):
    x, y = regression(6)
    model = compiled(strategy)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(1, drop_remainder=True)
    return outcome(model, model.fit(data, verbose=0))


_TOO_SMALL = (
    r"(?s)The global batch is smaller than the number of replicas.*global batch size=1.*Fix: Use a batch size of 2"
)


@case(errors={"mirrored": _TOO_SMALL, "multi": _TOO_SMALL}, loss_falls=False)
def batch_smaller_than_the_replicas(strategy):
    return _single_row_batches(strategy)


@case(errors={"mirrored": _TOO_SMALL, "multi": _TOO_SMALL}, loss_falls=False)
def batch_size_smaller_than_the_replicas(strategy):
    x, y = regression(6)
    model = compiled(strategy)
    return outcome(model, model.fit(x, y, batch_size=1, shuffle=False, verbose=0))


_UNBATCHED = r"(?s)The dataset is not batched.*Fix: Call `dataset.batch"


@case(errors=dict.fromkeys(("mirrored", "multi", "ps"), _UNBATCHED), loss_falls=False)
def dataset_of_scalars_that_is_not_batched(strategy):
    """On one device Keras trains on single numbers as if each were a batch; here there is no axis to share out."""
    x = np.arange(4, dtype="float32")
    with strategy.scope():
        model = keras.Sequential([keras.layers.Lambda(lambda v: v * 1.0)])
        model.compile("sgd", "mse")
    if is_single(strategy):
        return {}
    model.fit(tf.data.Dataset.from_tensor_slices((x, x)), verbose=0)
    return {}


_ENDLESS = r"(?s)The dataset never ends.*Fix: Pass steps_per_epoch"


@case(errors=dict.fromkeys(("mirrored", "multi", "ps"), _ENDLESS))
def endless_dataset_without_steps(strategy):
    x, y = regression()
    model = compiled(strategy)
    if not is_single(strategy):
        model.fit(dataset(x, y).repeat(), verbose=0)
    return {}


_FOREIGN = (
    r"(?s)Variables were made outside of strategy.scope.*{}.*Fix: Make layers, optimizer objects and metric objects"
)
_EVERYWHERE = ("mirrored", "multi", "ps")


@case(errors=dict.fromkeys(_EVERYWHERE, _FOREIGN.format("outside/kernel")))
def layer_made_outside_of_the_scope(strategy):
    x, y = regression()
    layer = keras.layers.Dense(1, name="outside")
    layer.build((None, 4))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), layer])
        model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    return {}


@case(errors=dict.fromkeys(_EVERYWHERE, _FOREIGN.format("iteration")))
def optimizer_made_outside_of_the_scope(strategy):
    x, y = regression()
    optimizer = keras.optimizers.SGD(0.1)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
    model.fit(x, y, verbose=0)
    return {}


@case(errors=dict.fromkeys(_EVERYWHERE, _FOREIGN.format("of_rows/count")))
def metric_made_outside_of_the_scope(strategy):
    x, y = regression()
    metric = RowCount("of_rows")
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[metric])
    model.fit(x, y, verbose=0)
    return {}


@case(
    errors=dict.fromkeys(
        _EVERYWHERE, r"(?s)made outside of strategy.scope\(\).*Fix: Build and compile the model inside"
    )
)
def model_made_outside_of_the_scope(strategy):
    x, y = regression()
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with strategy.scope():
        model.fit(x, y, verbose=0)
    return {}
