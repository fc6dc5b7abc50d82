"""Variables that layers assign in `call`."""

from __future__ import annotations

import keras
import tensorflow as tf
from table import case

from cases.building import build, classification, dataset, outcome, regression

L = keras.layers


class CountsCalls(L.Layer):
    """Keeps an integer and a float in `call`, as layers with state do."""

    def build(self, shape):
        self.calls = self.add_weight(shape=(), dtype="int64", initializer="zeros", trainable=False, name="calls_int")
        self.last_mean = self.add_weight(shape=(), initializer="zeros", trainable=False, name="moving_last_mean")

    def call(self, x, training=False):
        if training:
            self.calls.assign_add(1)
            self.last_mean.assign(keras.ops.mean(x))
        return x


@case()
def state_assigned_in_call(strategy):
    """A float state ends as the mean over the rows of the global batch; an integer is the same everywhere."""
    x, y = regression(16)
    model = build(strategy, lambda: CountsCalls(name="counts"), lambda: L.Dense(1))
    history = model.fit(dataset(x, y), epochs=2, verbose=0)
    calls = int(model.get_layer("counts").calls.numpy())
    return outcome(model, history) | {"always/calls": calls}


class CountsRows(L.Layer):
    """Keeps integers that depend on the rows, each added to in another way."""

    def build(self, shape):
        def counter(name, shape=(), dtype="int64"):
            return self.add_weight(shape=shape, dtype=dtype, initializer="zeros", trainable=False, name=name)

        self.rows = counter("rows")
        self.positive = counter("positive", (4,), "int32")
        self.in_branch = counter("in_branch")
        self.minus = counter("minus")
        self.steps = counter("steps", dtype="uint8")

    def call(self, x, training=False):
        if training:
            rows = tf.shape(x, out_type=tf.int64)[0]
            self.rows.assign_add(rows)
            self.positive.assign(tf.reduce_sum(tf.cast(x > 0, tf.int32), axis=0) + self.positive)
            self.in_branch.assign_add(tf.cond(tf.reduce_sum(x) > -1e9, lambda: 2 * rows, lambda: rows))
            self.minus.assign_sub(3 * tf.identity(rows))
            self.steps.assign_add(1)
        return x


@case()
def rows_counted_in_call(strategy):
    """Integers to which a layer adds what it sees of the rows, called twice a step."""
    x, y = regression()
    with strategy.scope():
        counts = CountsRows(name="counts")
        inputs = keras.Input((4,))
        outputs = L.Dense(1)(counts(inputs) + counts(2 * inputs))
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.01), "mse")
    history = model.fit(dataset(x, y), epochs=2, verbose=0)
    names = ("rows", "positive", "in_branch", "minus", "steps")
    return outcome(model, history) | {f"always/{name}": getattr(counts, name).numpy() for name in names}


class RemembersLargest(L.Layer):
    """Keeps the largest row number seen: no sum."""

    def build(self, shape):
        self.largest = self.add_weight(shape=(), dtype="int64", initializer="zeros", trainable=False, name="largest")

    def call(self, x, training=False):
        if training:
            self.largest.assign(tf.maximum(self.largest.value, tf.cast(tf.reduce_max(x), tf.int64)))
        return x


class CountsFromCount(CountsRows):
    """Adds to one integer what another one holds in the midst of the step."""

    def call(self, x, training=False):
        if training:
            self.rows.assign_add(tf.shape(x, out_type=tf.int64)[0])
            self.minus.assign_add(self.rows.value)
        return x


_NO_SUM = r"(?s)The variable '.*' has no value over several replicas.*not a sum.*Fix: Write it with \w+.assign_add"
_REFUSED = dict.fromkeys(("mirrored", "multi"), _NO_SUM)


@case(errors=_REFUSED)
def largest_row_remembered_in_call(strategy):
    x, y = classification()
    model = build(strategy, RemembersLargest, lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), verbose=0))


@case(errors=_REFUSED)
def count_that_follows_a_count(strategy):
    x, y = regression()
    model = build(strategy, CountsFromCount, lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), verbose=0))
