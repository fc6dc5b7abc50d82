"""tf_keras (Keras 2) on one device, a second oracle, gives the numbers of tfdist on two."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfdist

DEVICES = ["CPU:0", "CPU:1"]
#: Sums of few powers of 2: tf_keras keeps hyperparameters in single precision.
OPTIMIZERS = {
    "sgd": lambda k: k.optimizers.SGD(2**-4, momentum=0.875, nesterov=True),
    "adam": lambda k: k.optimizers.Adam(2**-6, beta_1=0.875, beta_2=0.96875, epsilon=2**-20),
    "rmsprop": lambda k: k.optimizers.RMSprop(2**-6, rho=0.75, momentum=0.5, epsilon=2**-20, centered=True),
    "adagrad": lambda k: k.optimizers.Adagrad(2**-3, initial_accumulator_value=0.125, epsilon=2**-20),
    "adamw": lambda k: k.optimizers.AdamW(2**-6, weight_decay=0.125, beta_1=0.875, beta_2=0.96875, epsilon=2**-20),
    "ftrl": lambda k: k.optimizers.Ftrl(2**-3, initial_accumulator_value=0.125),
}
LOSSES = {
    "mean_squared_error": lambda k: k.losses.MeanSquaredError(),
    "huber": lambda k: k.losses.Huber(0.25),
    "binary_crossentropy": lambda k: k.losses.BinaryCrossentropy(from_logits=True),
    "log_cosh": lambda k: k.losses.LogCosh(),
}


@pytest.fixture(autouse=True)
def _double_precision():
    for library in (keras, tf_keras):
        (library.config if library is keras else library.backend).set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy("float32")
    for library in (keras, tf_keras):
        (library.config if library is keras else library.backend).set_floatx("float32")
        library.backend.clear_session()


def train(library, strategy, optimizer, loss):
    layers = library.layers
    with strategy.scope():
        model = library.Sequential(
            [
                library.Input((3,)),
                layers.Dense(5, activation="tanh", kernel_regularizer=library.regularizers.L2(2**-7)),
                layers.BatchNormalization(epsilon=2**-10, trainable=False),
                layers.Dense(1),
            ]
        )
        rng = np.random.default_rng(3)
        model.set_weights([rng.uniform(0.2, 0.9, size=w.shape) for w in model.get_weights()])
        model.compile(OPTIMIZERS[optimizer](library), LOSSES[loss](library), metrics=["mae"])
    x = np.random.default_rng(1).normal(size=(24, 3))
    y = (x[:, :1] + 0.3 * x[:, 1:2] > 0).astype(float)
    weight = np.linspace(0.5, 2.0, 24)
    data = tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(8)
    history = model.fit(data, epochs=3, shuffle=False, verbose=0)
    return model.get_weights(), history.history


@pytest.mark.parametrize(
    ("optimizer", "loss"),
    [*((name, "mean_squared_error") for name in OPTIMIZERS), *(("sgd", name) for name in list(LOSSES)[1:])],
)
def test_both_give_the_same_numbers(optimizer, loss):
    right, right_logs = train(tf_keras, tf.distribute.get_strategy(), optimizer, loss)
    got, logs = train(keras, tfdist.mirrored_strategy(DEVICES), optimizer, loss)
    for a, b in zip(got, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for name in ("loss", "mae"):
        np.testing.assert_allclose(logs[name], right_logs[name], rtol=1e-12, err_msg=name)
