"""A train_step whose own mean loss was not weighted is warned of; one that uses `tfdist.scale_loss` is not."""

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
