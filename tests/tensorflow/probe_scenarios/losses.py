"""Probes: losses and random numbers."""

import keras
import numpy as np
import tensorflow as tf

from probe_scenarios.registry import close, model_of, probe, rows, toy_fit


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
