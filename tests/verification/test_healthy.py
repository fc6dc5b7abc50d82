"""A healthy model gives no finding, whatever is in it."""

import keras
import models
import numpy as np
import pytest
import tensorflow as tf

L = keras.layers


def adam_with_clipping_and_loss_scale():
    optimizer = keras.optimizers.Adam(0.05, clipnorm=0.5)
    return models.network(optimizer=keras.optimizers.LossScaleOptimizer(optimizer))


def dropout():
    return models.network(L.Dropout(0.5), L.GaussianNoise(0.5), run_eagerly=True)


def batch_normalization():
    return models.network(L.BatchNormalization(synchronized=True), L.Dropout(0.5))


def gradients_that_cancel_out():
    """Those of a bias before a BatchNormalization, and of all before one of one unit: Adam makes steps of them."""
    extra = [L.Dense(1), L.BatchNormalization(synchronized=True), L.Dense(2), L.BatchNormalization(synchronized=True)]
    return models.network(*extra, optimizer="adam")


def layer_that_keeps_a_mean():
    return models.network(models.RunningMean())


def own_train_step():
    return models.own_train_step(models.ScaledLoss)


def half_precision():
    model = keras.Sequential([L.Input((5,)), L.Dense(3, dtype="mixed_float16"), L.Dense(1)])
    optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=2)
    return model


def subclass():
    class Inner(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.drop, self.last = L.Dense(4, activation="relu"), L.Dropout(0.5), L.Dense(1)

        def call(self, inputs, training=False):
            return self.last(self.drop(self.first(inputs), training=training))

    model = Inner()
    model.compile("adam", "mae", metrics=["mse"])
    return model


@pytest.mark.parametrize(
    "build_fn",
    [
        adam_with_clipping_and_loss_scale,
        dropout,
        batch_normalization,
        pytest.param(gradients_that_cancel_out, marks=pytest.mark.campaign),
        pytest.param(layer_that_keeps_a_mean, marks=pytest.mark.campaign),
        own_train_step,
        half_precision,
        pytest.param(subclass, marks=pytest.mark.campaign),
    ],
)
def test_no_finding(compare, build_fn):
    result = compare(build_fn, models.batches(rows=21))  # the last batch has 5 rows
    assert not result.findings, "\n".join(map(str, result.findings))
    assert (result.steps, result.replicas) == (3, 2)
    assert result.compared > 3 * 8
    assert not result.notes


@pytest.mark.campaign
def test_augmented_images(compare):
    """Random layers, an optimizer that magnifies rounding, averages of weights."""
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(13, 10, 10, 1)).astype("float32"), rng.integers(0, 3, size=13)

    def build():
        model = keras.Sequential(
            [
                L.Input((10, 10, 1)),
                L.RandomFlip(),
                L.Conv2D(4, 3),
                L.BatchNormalization(synchronized=True),
                L.SpatialDropout2D(0.3),
                L.Flatten(),
                L.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.AdamW(0.01, use_ema=True), loss, metrics=["accuracy"])
        return model

    result = compare(build, tf.data.Dataset.from_tensor_slices((images, labels)).batch(8), steps=2)
    assert not result.findings, "\n".join(map(str, result.findings))


@pytest.mark.campaign
def test_several_outputs_with_weights(compare):
    rng = np.random.default_rng(0)
    x = {name: rng.normal(size=(13, 3)).astype("float32") for name in "ab"}
    y = {"p": x["a"].sum(axis=1, keepdims=True), "q": rng.integers(0, 2, size=(13, 1)).astype("float32")}
    weights = {name: rng.uniform(size=13).astype("float32") for name in y}

    def build():
        inputs = {name: keras.Input((3,), name=name) for name in x}
        hidden = L.Dense(6, activation="tanh")(L.Concatenate()(list(inputs.values())))
        outputs = {"p": L.Dense(1, name="p")(hidden), "q": L.Dense(1, activation="sigmoid", name="q")(hidden)}
        model = keras.Model(inputs, outputs)
        losses = {"p": "mse", "q": "binary_crossentropy"}
        model.compile("adam", losses, metrics={"p": ["mae"], "q": ["AUC", "accuracy"]})
        return model

    data = tf.data.Dataset.from_tensor_slices((x, y, weights)).shuffle(13).batch(8)
    result = compare(build, data, steps=2)
    assert not result.findings, "\n".join(map(str, result.findings))


class RandomShift(L.Layer):
    """Draws with tf.random, which the verifier cannot silence."""

    def call(self, inputs):
        return inputs + 0.3 * tf.random.normal(tf.shape(inputs))


def test_what_is_random_on_one_device_too_is_noted(compare):
    result = compare(lambda: models.network(RandomShift()), models.batches(), steps=2)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert "metric loss" in result.notes[0]
