"""Training steps and functions of users: an unweighted mean loss is warned of, a training function is taken."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist


class OwnMeanLoss(keras.Model):
    def __init__(self, scale):
        super().__init__()
        self.scale, self.dense = scale, keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.scale(tf.reduce_mean(tf.square(y - self(x, training=True))))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@pytest.mark.parametrize(("scale", "is_warned"), [(lambda loss: loss, True), (tfdist.scale_loss, False)])
def test_a_loss_that_was_not_weighted_is_warned_of(caplog, monkeypatch, scale, is_warned):
    monkeypatch.setattr("absl.logging._log_counter_per_token", {}, raising=False)  # log_first_n counts calls
    caplog.set_level(logging.WARNING)
    with tfdist.mirrored_strategy().scope():
        model = OwnMeanLoss(scale)
        model.compile(keras.optimizers.SGD(0.1))
    model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), batch_size=4, verbose=0)
    warned = [record for record in caplog.records if "tfdist.scale_loss" in record.getMessage()]
    assert bool(warned) == is_warned


class OwnTrainFunction(keras.Model):
    """Replaces the whole training function, as Keras's documentation allows."""

    def call(self, inputs):
        return inputs

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            self.train_function = lambda iterator: {"seen": float(next(iterator) is not None)}
        return self.train_function


def test_a_training_function_of_the_users_own():
    with tfdist.mirrored_strategy().scope():
        model = OwnTrainFunction()
        model.compile("sgd", "mse")
    x = np.ones((8, 1), "float32")
    assert model.fit(x, x, batch_size=4, epochs=2, verbose=0).history["seen"] == [1.0, 1.0]
