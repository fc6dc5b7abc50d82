"""Every optimizer and option of an optimizer.

Most run in float64, where a difference cannot be mistaken for rounding that the optimizer has magnified.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from table import add_case, case

from cases.building import compiled, dataset, outcome, regression, state_of

o = keras.optimizers

OPTIMIZERS = {
    "sgd_momentum": lambda: o.SGD(0.02, momentum=0.9),
    "sgd_nesterov": lambda: o.SGD(0.02, momentum=0.9, nesterov=True),
    "sgd_weight_decay": lambda: o.SGD(0.05, weight_decay=0.01),
    "adam": lambda: o.Adam(0.01),
    "adam_amsgrad": lambda: o.Adam(0.01, amsgrad=True),
    "adamw": lambda: o.AdamW(0.01, weight_decay=0.1),
    "rmsprop": lambda: o.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda: o.Adagrad(0.1),
    "adadelta": lambda: o.Adadelta(1.0),
    "adamax": lambda: o.Adamax(0.01),
    "nadam": lambda: o.Nadam(0.01),
    "ftrl": lambda: o.Ftrl(0.1, l1_regularization_strength=0.001),
    "lion": lambda: o.Lion(0.01),
    "lamb": lambda: o.Lamb(0.01),
    "adafactor": lambda: o.Adafactor(0.05),
    "clipnorm": lambda: o.SGD(0.05, clipnorm=0.3),
    "clipvalue": lambda: o.SGD(0.05, clipvalue=0.2),
    "global_clipnorm": lambda: o.SGD(0.05, global_clipnorm=0.5),
    "ema": lambda: o.SGD(0.05, use_ema=True, ema_momentum=0.8),
    "ema_overwriting": lambda: o.SGD(0.05, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=2),
    "gradient_accumulation": lambda: o.SGD(0.05, momentum=0.5, gradient_accumulation_steps=2),
    "gradient_accumulation_in_adam": lambda: o.Adam(0.01, gradient_accumulation_steps=3, global_clipnorm=1.0),
    "loss_scale": lambda: o.LossScaleOptimizer(o.SGD(0.05, momentum=0.9), initial_scale=64.0, dynamic_growth_steps=3),
    "learning_rate_schedule": lambda: o.SGD(o.schedules.ExponentialDecay(0.05, 2, 0.7)),
    "all_at_once": lambda: o.AdamW(
        o.schedules.CosineDecay(0.01, 10),
        weight_decay=0.05,
        clipnorm=0.5,
        use_ema=True,
        ema_momentum=0.9,
        ema_overwrite_frequency=3,
    ),
}

#: These raise TensorFlow's error about `merge_call` in a condition.
_NOT_ON_SERVERS = {
    "ema_overwriting",
    "gradient_accumulation",
    "gradient_accumulation_in_adam",
    "all_at_once",
    "loss_scale",
}

#: At these rates the loss need not fall within three epochs.
_SLOW = {"adadelta", "ftrl", "ema", "ema_overwriting"}


def _add(name, make):
    def run(strategy):
        x, y = regression()
        model = compiled(strategy, make)
        return outcome(model, model.fit(dataset(x, y), epochs=3, verbose=0))

    errors = {"ps": "has no meaning under parameter servers"} if name in _NOT_ON_SERVERS else {}
    add_case(
        f"optimizer_{name}",
        run,
        floatx="float64",
        tolerance=1e-12,
        loss_falls=name not in _SLOW,
        errors=errors,
    )


for _name, _make in OPTIMIZERS.items():
    _add(_name, _make)


def toy(strategy, optimizer, loss="mse", y=(10.0, 0.0, 0.0, 0.0), **compile_arguments):
    """y = w x with w at 1, trained on one batch of 4 rows: small enough to work out by hand."""
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        )
        model.compile(optimizer(), loss, **compile_arguments)
    x = np.arange(1, len(y) + 1, dtype="float32")[:, None]
    history = model.fit(x, np.array(y, "float32")[:, None], batch_size=4, shuffle=False, verbose=0)
    return {"always/w": model.get_weights()[0][0, 0], "always/loss": history.history["loss"][0]}


def _add_toy(name, w, optimizer, **arguments):
    add_case(
        f"toy_{name}",
        lambda strategy: toy(strategy, optimizer, **arguments),
        expected={"always/w": w},
        loss_falls=False,
    )


_add_toy("plain", 0.0, lambda: o.SGD(0.1))
_add_toy("loss_is_a_scalar", 0.0, lambda: o.SGD(0.1), loss=lambda y, p: keras.ops.mean(keras.ops.square(y - p)))
_add_toy("clipnorm", 0.9, lambda: o.SGD(0.1, clipnorm=1.0))
_add_toy("clipvalue", 0.5, lambda: o.SGD(0.1, clipvalue=5.0))


@case(loss_falls=False)
def toy_short_last_batch(strategy):
    """A row of the last batch weighs what it would on one device."""
    return toy(strategy, lambda: o.SGD(0.001), y=(10.0, 0.0, 0.0, 0.0, 0.0))


@case(loss_falls=False, errors={"ps": "dynamic_growth_steps has no meaning under parameter servers"})
def loss_scale_when_one_replica_overflows(strategy):
    """The step is skipped everywhere and the scale halves once."""
    x, y = regression(16)
    x[3] = np.inf
    model = compiled(strategy, lambda: o.LossScaleOptimizer(o.SGD(0.05), initial_scale=64.0))
    before = model.get_weights()
    model.fit(dataset(x, y), epochs=1, verbose=0)
    model_after_one = model.get_weights()
    assert all(np.isfinite(w).all() for w in model_after_one)
    assert any((a != b).any() for a, b in zip(before, model_after_one, strict=True))
    return {**state_of(model), "always/scale": float(model.optimizer.dynamic_scale.numpy())}


@case()
def gradients_that_are_none(strategy):
    """A weight that the loss does not depend on."""

    class Unused(keras.Model):
        def __init__(self):
            super().__init__()
            self.used = keras.layers.Dense(1, kernel_initializer="ones")
            self.unused = self.add_weight(shape=(2,), initializer="ones", name="unused")

        def call(self, x):
            return self.used(x)

    x, y = regression()
    with strategy.scope():
        model = Unused()
        model.compile(o.SGD(0.05), "mse")
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def gradients_applied_in_the_way_of_keras_2(strategy):
    class Older(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer="ones")

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss_share": loss * 0}

    x, y = regression()
    with strategy.scope():
        model = Older()
        model.compile(o.SGD(0.05), "mse")
    model.fit(dataset(x, y), epochs=2, verbose=0)
    return outcome(model, None, x, y)
