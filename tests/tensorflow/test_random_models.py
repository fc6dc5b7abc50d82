"""Random small models on random rows, weights and batch sizes give the numbers of one device on 2 to 4 replicas."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tfdist

#: `make campaign` tries more.
NUM_EXAMPLES = int(os.environ.get("TFDIST_RANDOM_MODELS", "5"))

LAYERS = {
    "dense": lambda: keras.layers.Dense(4, activation="tanh"),
    "regularized": lambda: keras.layers.Dense(3, kernel_regularizer="l2", bias_regularizer="l2"),
    "constrained": lambda: keras.layers.Dense(4, kernel_constraint=keras.constraints.MaxNorm(0.5)),
    "layer_normalization": keras.layers.LayerNormalization,
    "synchronized_batch_normalization": lambda: keras.layers.BatchNormalization(synchronized=True),
    "frozen": lambda: keras.layers.Dense(3, activation="relu", trainable=False),
}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "clipped": lambda: keras.optimizers.SGD(0.05, clipnorm=0.2),
    "clipped_globally": lambda: keras.optimizers.RMSprop(0.01, global_clipnorm=0.3),
    "decayed": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "accumulated": lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
    "averaged": lambda: keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2),
}
LOSSES = {
    "mean": keras.losses.MeanSquaredError,
    "sum": lambda: keras.losses.MeanSquaredError(reduction="sum"),
    "weighted_mean": lambda: keras.losses.MeanAbsoluteError(reduction="mean_with_sample_weight"),
    "scalar": lambda: lambda y, p: keras.ops.mean(keras.ops.square(y - p)),
}


@pytest.fixture(autouse=True)
def _double_precision():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")  # of which older Kerases keep one of their own
    yield
    keras.config.set_dtype_policy("float32")
    keras.config.set_floatx("float32")
    keras.utils.clear_session()


def train(strategy, data, *, layers, optimizer, loss, steps_per_execution):
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((3,)), *(LAYERS[name]() for name in layers), keras.layers.Dense(1)]
        )
        rng = np.random.default_rng(4)
        model.set_weights(
            [rng.uniform(0.1, 0.6, size=w.shape) * rng.choice([-1, 1], size=w.shape) for w in model.weights]
        )
        model.compile(
            OPTIMIZERS[optimizer](),
            LOSSES[loss](),
            metrics=["mae"],
            weighted_metrics=[keras.metrics.RootMeanSquaredError(name="rmse")],
            steps_per_execution=steps_per_execution,
        )
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    predictions = model.predict(data.map(lambda x, *_: x), verbose=0)
    return [*model.get_weights(), predictions], history.history


@settings(
    max_examples=NUM_EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a step is traced for each example: shrinking would take hours
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    replicas=st.integers(2, 4),
    rows=st.integers(4, 23),
    batch=st.integers(4, 9),
    layers=st.lists(st.sampled_from(sorted(LAYERS)), max_size=2),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    loss=st.sampled_from(sorted(LOSSES)),
    is_weighted=st.booleans(),
    steps_per_execution=st.sampled_from([1, 1, 3]),
    seed=st.integers(0, 2**16),
)
@pytest.mark.timeout(1800)
def test_replicas_give_the_numbers_of_one_device(  # noqa: PLR0917
    replicas, rows, batch, layers, optimizer, loss, is_weighted, steps_per_execution, seed
):
    rng = np.random.default_rng(seed)
    arrays = (rng.normal(size=(rows, 3)), rng.normal(size=(rows, 1)))
    if is_weighted and loss != "scalar":
        arrays = (*arrays, rng.uniform(0.1, 2.0, size=rows))
    data = tf.data.Dataset.from_tensor_slices(arrays).batch(batch)
    arguments = {"layers": layers, "optimizer": optimizer, "loss": loss, "steps_per_execution": steps_per_execution}
    right, right_logs = train(tf.distribute.get_strategy(), data, **arguments)
    strategy = tfdist.mirrored_strategy([f"CPU:{i}" for i in range(replicas)])
    got, logs = train(strategy, data, **arguments)
    for a, b in zip(got, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for name, values in right_logs.items():
        np.testing.assert_allclose(logs[name], values, rtol=1e-12, atol=1e-12, err_msg=name)
