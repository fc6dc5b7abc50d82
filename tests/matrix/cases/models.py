"""Kinds of models and of training steps."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from table import case

import tfdist
from cases.building import (
    BATCH,
    RowCount,
    as_arrays,
    compiled,
    dataset,
    dense_model,
    fixed_weights,
    logs_of,
    outcome,
    regression,
    state_of,
)


@case(wide=True)
def sequential(strategy):
    x, y = regression()
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y), epochs=3, verbose=0), x, y)


@case(wide=True, loss_falls=False)
def twenty_steps(strategy):
    x, y = regression(160)
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y), verbose=0), x, y)


@case()
def functional_with_two_inputs_and_outputs(strategy):
    x, y = regression()
    inputs = {"left": x[:, :2], "right": x[:, 2:]}
    targets = {"value": y, "is_positive": (y > 0).astype("float32")}
    with strategy.scope():
        left, right = keras.Input((2,), name="left"), keras.Input((2,), name="right")
        hidden = keras.layers.Dense(4, activation="tanh")(keras.layers.Concatenate()([left, right]))
        value = keras.layers.Dense(1, name="value")(hidden)
        is_positive = keras.layers.Dense(1, activation="sigmoid", name="is_positive")(hidden)
        model = keras.Model({"left": left, "right": right}, {"value": value, "is_positive": is_positive})
        fixed_weights(model)
        model.compile(
            keras.optimizers.SGD(0.05),
            loss={"value": "mse", "is_positive": "binary_crossentropy"},
            loss_weights={"value": 1.0, "is_positive": 0.3},
            metrics={"value": ["mae"], "is_positive": [keras.metrics.BinaryAccuracy(name="accuracy"), RowCount()]},
        )
    history = model.fit(inputs, targets, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
    return outcome(model, history, inputs, targets)


class Unbuilt(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(5, activation="tanh", kernel_initializer="ones", bias_initializer="zeros")
        self.out = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, x):
        return self.out(self.hidden(x))


@case()
def subclassed_and_not_yet_built(strategy):
    x, y = regression()
    with strategy.scope():
        model = Unbuilt()
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[RowCount(), "mae"])
    assert not model.built
    return outcome(model, model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0), x, y)


@case()
def not_yet_built_and_first_evaluated(strategy):
    x, y = regression()
    with strategy.scope():
        model = Unbuilt()
        model.compile("sgd", "mse", metrics=[RowCount()])
    values = model.evaluate(x, y, batch_size=BATCH, return_dict=True, verbose=0)
    return {f"always/{name}": value for name, value in values.items()}


@case()
def not_yet_built_and_first_predicts(strategy):
    x, _ = regression()
    with strategy.scope():
        model = Unbuilt()
    return as_arrays("always/predict", model.predict(x, batch_size=BATCH, verbose=0))


@case()
def compiled_outside_of_the_scope(strategy):
    x, y = regression()
    with strategy.scope():
        model = dense_model()
    model.compile("sgd", "mse", metrics=["mae"])
    return outcome(model, model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0), x, y)


@case()
def fit_within_the_scope(strategy):
    x, y = regression()
    model = compiled(strategy)
    with strategy.scope():
        history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        return outcome(model, history, x, y)


class OwnStep(keras.Model):
    """A training step as in Keras's guide, with metrics of its own."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.mae = keras.metrics.MeanAbsoluteError(name="mae")
        self.rows = RowCount()

    def call(self, x):
        return self.dense(x)

    @property
    def metrics(self):
        return [self.loss_tracker, self.mae, self.rows]

    def _update(self, x, y, y_pred, loss):
        self.loss_tracker.update_state(
            keras.src.losses.loss.unscale_loss_for_distribution(loss), sample_weight=keras.ops.shape(x)[0]
        )
        self.mae.update_state(y, y_pred)
        self.rows.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return self._update(x, y, y_pred, loss)

    def test_step(self, data):
        x, y = data
        y_pred = self(x, training=False)
        return self._update(x, y, y_pred, self.compute_loss(x, y, y_pred, training=False))


@case(wide=True)
def custom_train_step(strategy):
    x, y = regression()
    with strategy.scope():
        model = OwnStep()
        model(np.zeros((1, 4), "float32"))
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return outcome(model, model.fit(dataset(x, y), epochs=3, verbose=0, validation_data=(x[:9], y[:9])), x, y)


class GuideStep(keras.Model):
    """The step of Keras's guide "Customizing what happens in fit()"."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_regularizer="l2")

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {"own": loss, **{name: value for m in self.metrics for name, value in _named(m.result(), m.name)}}


def _named(result, name):
    return result.items() if isinstance(result, dict) else [(name, result)]


@case()
def custom_train_step_of_the_guide(strategy):
    x, y = regression()
    with strategy.scope():
        model = GuideStep()
        model(np.zeros((1, 4), "float32"))
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    history = model.fit(dataset(x, y, batch=7), epochs=3, verbose=0)
    return outcome(model, history)


class TwoOptimizers(keras.Model):
    """Two parts that are trained by an optimizer each, in one step."""

    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(3, activation="tanh")
        self.second = keras.layers.Dense(1)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.second(self.first(x))

    def compile(self, first_optimizer, second_optimizer, loss):
        super().compile(loss=loss)
        self.first_optimizer, self.second_optimizer = first_optimizer, second_optimizer

    @property
    def metrics(self):
        return [self.loss_tracker]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
            other_loss = self.compute_loss(x, 2 * y, y_pred)
        for part, optimizer, value in (
            (self.first, self.first_optimizer, loss),
            (self.second, self.second_optimizer, other_loss),
        ):
            optimizer.apply(tape.gradient(value, part.trainable_variables), part.trainable_variables)
        self.loss_tracker.update_state(
            keras.src.losses.loss.unscale_loss_for_distribution(loss), sample_weight=keras.ops.shape(x)[0]
        )
        return {"loss": self.loss_tracker.result()}


@case(loss_falls=False)
def custom_train_step_with_two_optimizers(strategy):
    x, y = regression()
    with strategy.scope():
        model = TwoOptimizers()
        model(np.zeros((1, 4), "float32"))
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.02), keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
    found = {name: v for name, v in state_of(model).items() if "/weights/" in name} | logs_of(history)
    for name in ("first", "second"):
        optimizer = getattr(model, f"{name}_optimizer")
        found[f"always/iterations_of_{name}"] = int(optimizer.iterations.numpy())
        found |= {f"sync/{name}/{i}": v.numpy() for i, v in enumerate(optimizer.variables)}
    return found


class OwnMeanLoss(keras.Model):
    """Works out a mean loss without Keras's losses."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
            scaled = tfdist.scale_loss(loss)
        self.optimizer.apply(tape.gradient(scaled, self.trainable_variables), self.trainable_variables)
        return {"mean": loss}


@case(not_applicable={"ps": "a worker takes a whole batch"})
def custom_train_step_with_a_mean_of_its_own(strategy):
    x, y = regression()
    with strategy.scope():
        model = OwnMeanLoss()
        model.build((None, 4))
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.05))
    model.fit(dataset(x, y), epochs=2, verbose=0)
    return state_of(model)


@case()
def several_models(strategy):
    x, y = regression()
    first, second = compiled(strategy), compiled(strategy, lambda: keras.optimizers.SGD(0.02, momentum=0.9))
    a = first.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    b = second.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    first.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    mine = outcome(first, a, x, y)
    return {**mine, **{name.replace("/", "/second/", 1): v for name, v in outcome(second, b, x, y).items()}}


@case()
def repeated_fit(strategy):
    x, y = regression()
    model = compiled(strategy)
    model.fit(dataset(x, y), epochs=1, verbose=0)
    model.fit(x[:10], y[:10], batch_size=4, epochs=2, shuffle=False, verbose=0)
    model.evaluate(x, y, batch_size=5, verbose=0)
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def recompiled_with_another_optimizer(strategy):
    x, y = regression()
    model = compiled(strategy)
    model.fit(dataset(x, y), epochs=1, verbose=0)
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.01, momentum=0.5), "mae", metrics=[RowCount()])
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def frozen_layer(strategy):
    x, y = regression()
    with strategy.scope():
        model = dense_model()
        model.layers[0].trainable = False
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[RowCount()])
    frozen = [np.array(w) for w in model.layers[0].get_weights()]
    history = model.fit(dataset(x, y), epochs=2, verbose=0)
    for before, after in zip(frozen, model.layers[0].get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    return outcome(model, history, x, y)


@case()
def frozen_then_trained(strategy):
    x, y = regression()
    with strategy.scope():
        model = dense_model()
        model.layers[0].trainable = False
        model.compile(keras.optimizers.SGD(0.05), "mse")
    model.fit(dataset(x, y), epochs=1, verbose=0)
    model.layers[0].trainable = True
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[RowCount()])
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case(
    tolerance=2e-2,  # float16 keeps three digits, and each replica rounds its own sums
    errors={"ps": r"(?s)dynamic_growth_steps has no meaning under parameter servers.*mixed_bfloat16"},
)
def mixed_precision(strategy):
    x, y = regression()
    keras.config.set_dtype_policy("mixed_float16")
    # A scale at which float16 does not overflow on one device: its gradients are larger than each replica's share.
    model = compiled(strategy, lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05), 16.0))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case(tolerance=5e-2)  # bfloat16 keeps two digits, and each replica rounds its own sums
def everything_in_bfloat16(strategy):
    x, y = regression()
    keras.config.set_dtype_policy("bfloat16")
    model = compiled(strategy, lambda: keras.optimizers.SGD(0.02))
    history = model.fit(dataset(x, y), epochs=2, verbose=0)
    return {name: np.asarray(v, "float32") for name, v in outcome(model, history, x, y).items()}


@case()
def on_batches(strategy):
    """train_on_batch, test_on_batch, predict_on_batch: every worker passes the same global batch."""
    x, y = regression()
    model = compiled(strategy)
    found = {}
    for step in range(3):
        rows = slice(5 * step, 5 * step + 5)
        logs = model.train_on_batch(x[rows], y[rows], return_dict=True)
        found |= {f"sync/train/{step}/{name}": value for name, value in logs.items()}
    found |= state_of(model)
    fixed_weights(model)
    model.reset_metrics()
    found |= {f"always/test/{n}": v for n, v in model.test_on_batch(x[:7], y[:7], return_dict=True).items()}
    weight = np.linspace(0.0, 1.0, 7).astype("float32")
    logs = model.test_on_batch(x[7:14], y[7:14], sample_weight=weight, return_dict=True)
    found |= {f"always/test_weighted/{n}": v for n, v in logs.items()}
    return found | as_arrays("always/predict", model.predict_on_batch(x[:7]))


@case()
def jit_compile(strategy):
    x, y = regression()
    model = compiled(strategy, jit_compile=True)
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def run_eagerly(strategy):
    x, y = regression()
    model = compiled(strategy, run_eagerly=True)
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case(tolerance=1e-12, floatx="float64", wide=True)
def double_precision(strategy):
    x, y = regression()
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y), epochs=3, verbose=0), x, y)
