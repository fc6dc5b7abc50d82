"""Variables split over two parameter servers: one worker takes steps in order, so weights are those of one device."""

import json

import numpy as np
import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(300)

TRAIN = """
    import json, os, sys
    import numpy as np
    import tensorflow as tf
    import keras, tfdist

    OPTIMIZERS = {
        "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
        "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=0.5),
    }
    partitioners = tf.distribute.experimental.partitioners

    def result(strategy, name):
        with strategy.scope():
            tokens = keras.Input((5,), dtype="int32")
            hidden = keras.layers.Flatten()(keras.layers.Embedding(11, 4)(tokens))
            hidden = keras.layers.Dense(8, activation="relu")(hidden)
            model = keras.Model(tokens, keras.layers.Dense(1)(hidden))
            rng = np.random.default_rng(2)
            model.set_weights([rng.uniform(-0.5, 0.5, size=w.shape) for w in model.get_weights()])
            model.compile(OPTIMIZERS[name](), "mse")
        x = rng.integers(0, 11, size=(40, 5)).astype("int32")
        y = x.sum(axis=1, keepdims=True).astype("float32") / 10
        history = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
        path = os.path.join(sys.argv[1], name + ".keras")
        model.save(path)
        with strategy.scope():
            loaded = keras.models.load_model(path)
        same = all((a == b).all() for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True))
        return {
            "shards": [len(getattr(v._value, "variables", [v])) for v in model.weights],
            "weights": [w.tolist() for w in model.get_weights()],
            "loss": history.history["loss"],
            "predictions": model.predict(x, verbose=0).tolist(),
            "iterations": int(model.optimizer.iterations),
            "loaded": same and int(loaded.optimizer.iterations) == int(model.optimizer.iterations),
        }

    def refused(strategy):
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.Lamb(0.01), "mse")
        try:
            model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
        except tfdist.errors.UnsupportedError as error:
            return str(error)

    def train():
        if "TF_CONFIG" in os.environ:
            strategy = tfdist.parameter_server_strategy(variable_partitioner=partitioners.FixedShardsPartitioner(2))
        else:
            strategy = tf.distribute.get_strategy()
        found = {name: result(strategy, name) for name in OPTIMIZERS}
        found["refused"] = refused(strategy) if "TF_CONFIG" in os.environ else None
        print("result", json.dumps(found), flush=True)

    if __name__ == "__main__":
        tfdist.run(train)
"""


def results(directory, **cluster):
    directory.mkdir()
    with LocalCluster(script=TRAIN, args=[str(directory)], time_limit_s=200, **cluster) as job:
        trainer = "chief" if "ps" in cluster else "worker 0"
        return json.loads(job.join(trainer)[trainer].stdout.partition("result ")[2])


def test_partitioned_variables_train_as_on_one_device(tmp_path):
    right = results(tmp_path / "one")
    found = results(tmp_path / "servers", workers=1, ps=2)
    assert "Lamb cannot update a variable that is split" in found.pop("refused")
    right.pop("refused")
    assert set(found) == set(right) == {"sgd", "adamw"}
    for name, got in found.items():
        expected = right[name]
        assert got["shards"] == [2, 2, 2, 2, 1], "the last bias has one element"
        assert got["iterations"] == expected["iterations"] == 15
        assert got["loaded"]
        assert expected["loaded"]
        for a, b in zip(got["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got["loss"], expected["loss"], rtol=1e-5)
        np.testing.assert_allclose(got["predictions"], expected["predictions"], rtol=1e-4, atol=1e-5)
