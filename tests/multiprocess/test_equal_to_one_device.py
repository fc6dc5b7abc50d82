"""Weights after 20 steps of SGD on 2 and on 4 workers are those of one device, and of tf_keras on one device."""

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(300)

MODEL = """
    import os, pickle, sys
    import numpy as np
    import tensorflow as tf

    STEPS, GLOBAL_BATCH = 20, 16

    def data():
        rng = np.random.default_rng(5)
        x = rng.normal(size=(STEPS * GLOBAL_BATCH, 6, 6, 1)).astype("float32")
        labels = (x.mean(axis=(1, 2, 3)) * 40).astype("int64") % 3
        return tf.data.Dataset.from_tensor_slices((x, labels)).batch(GLOBAL_BATCH)

    def build(keras):
        model = keras.Sequential([
            keras.layers.InputLayer(batch_input_shape=(None, 6, 6, 1)) if keras.__version__ < "3"
            else keras.layers.Input((6, 6, 1)),
            keras.layers.Conv2D(3, 3, activation="tanh"),
            keras.layers.Flatten(),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(3),
        ])
        rng = np.random.default_rng(6)
        model.set_weights([rng.uniform(-0.5, 0.5, size=w.shape) for w in model.get_weights()])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
        return model

    def train(keras, strategy=None):
        with (strategy or tf.distribute.get_strategy()).scope():
            model = build(keras)
        before = model.get_weights()
        history = model.fit(data(), verbose=0)
        assert any((a != b).any() for a, b in zip(before, model.get_weights()))
        return model.get_weights(), history.history["loss"], int(model.optimizer.iterations.numpy())

    if __name__ == "__main__":
        kind, path = sys.argv[1:]
        if kind == "tf_keras":
            import tf_keras
            result = train(tf_keras)
        elif kind == "keras":
            import keras
            result = train(keras)
        else:
            import keras, tfdist
            from absl import logging
            logging.set_verbosity(logging.INFO)
            strategy = tfdist.auto_strategy()
            result = train(keras, strategy)
            path += f".{tfdist.cluster_config().worker_index}"
        with open(path, "wb") as file:
            pickle.dump(result, file)
"""


def one_device(directory, kind):
    script = directory / "train.py"
    if not script.exists():
        script.write_text(textwrap.dedent(MODEL))
    path = directory / kind
    done = subprocess.run([sys.executable, str(script), kind, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return pickle.loads(path.read_bytes())


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("equal")


@pytest.fixture(scope="module")
def right(directory):
    return one_device(directory, "keras")


def largest_difference(weights, others):
    return max(np.abs(a - b).max() for a, b in zip(weights, others, strict=True))


def test_tf_keras_agrees_on_one_device(directory, right):
    weights, loss, iterations = one_device(directory, "tf_keras")
    assert largest_difference(weights, right[0]) < 1e-6
    np.testing.assert_allclose(loss, right[1], rtol=1e-6)
    assert iterations == right[2] == 20


TRANSPORTS = {
    "collective": {"TFDIST_TRANSPORT": "collective"},
    "tcp": {},
    "tcp-sockets": {"TFDIST_SHARED_MEMORY": "0"},
}


@pytest.mark.parametrize(
    ("workers", "transport"),
    [(2, "tcp"), pytest.param(2, "tcp-sockets", marks=pytest.mark.campaign), (2, "collective"), (4, "tcp")],
)
def test_workers_agree_with_one_device(directory, right, workers, transport):
    path = directory / f"workers-{workers}-{transport}"
    arguments = ["workers", str(path)]
    env = TRANSPORTS[transport]
    with LocalCluster(workers=workers, script=MODEL, args=arguments, env=env, time_limit_s=200) as cluster:
        chosen = cluster.join()["worker 0"].stderr
    assert f"exchanges over {transport.partition('-')[0]}: " in chosen
    results = [pickle.loads(path.with_name(f"{path.name}.{i}").read_bytes()) for i in range(workers)]
    for weights, loss, iterations in results:
        assert largest_difference(weights, right[0]) < 1e-6
        np.testing.assert_allclose(loss, right[1], rtol=1e-6)
        assert iterations == 20
        assert largest_difference(weights, results[0][0]) == 0
