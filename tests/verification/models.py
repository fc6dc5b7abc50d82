"""Models for the verifier, healthy and with faults, and data."""

import contextlib

import keras
import numpy as np
import tensorflow as tf


def batches(rows=24, batch=8, features=5):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features)).astype("float32")
    y = (3 * x.sum(axis=1, keepdims=True) + 1).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)


def network(*extra, features=5, **compile_arguments):
    model = keras.Sequential(
        [
            keras.layers.Input((features,)),
            keras.layers.Dense(8, activation="relu", name="hidden"),
            *extra,
            keras.layers.Dense(1, name="head"),
        ]
    )
    model.compile(**{"optimizer": keras.optimizers.SGD(0.05), "loss": "mse", "metrics": ["mae"], **compile_arguments})
    return model


class OwnMeanLoss(keras.Model):
    """A `train_step` whose loss is a mean over the rows at hand, as for one device."""

    def scale(self, loss):
        return loss

    def clip(self, gradients):
        return gradients

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
            scaled = self.scale(loss)
        self.optimizer.apply(self.clip(tape.gradient(scaled, self.trainable_variables)), self.trainable_variables)
        return {"loss": loss}


class ScaledLoss(OwnMeanLoss):
    """The same, mended with `tfdist.scale_loss`."""

    def scale(self, loss):
        import tfdist

        return tfdist.scale_loss(loss)


class OwnClipping(ScaledLoss):
    """A `train_step` that clips before the optimizer sees the gradients."""

    def clip(self, gradients):
        return [tf.clip_by_norm(g, 0.1) for g in gradients]


def own_train_step(model_class):
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(8, activation="relu", name="hidden")(inputs)
    model = model_class(inputs, keras.layers.Dense(1, name="head")(hidden))
    model.compile(optimizer=keras.optimizers.SGD(0.05))
    return model


class RunningMean(keras.layers.Layer):
    """Keeps a running mean of its inputs."""

    def build(self, shape):
        self.running = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="running")

    def call(self, inputs):
        self.running.assign(0.9 * self.running + 0.1 * tf.reduce_mean(inputs, axis=0))
        return inputs


@contextlib.contextmanager
def switched_off(*labels):
    """Without some of tfdist's overrides."""
    from tfdist.keras_compat import installation

    chosen = [o for o in installation.all_overrides() if o.label in labels]
    assert len(chosen) == len(labels)
    with contextlib.ExitStack() as stack:
        for override in chosen:
            original = installation._originals[override.label]
            replaced = vars(override.owner)[override.name]
            stack.callback(setattr, override.owner, override.name, replaced)
            if original is None:
                delattr(override.owner, override.name)
            else:
                setattr(override.owner, override.name, original)
        yield


def labels_of(module):
    return [override.label for override in module.OVERRIDES]
