"""Two workers with two devices each train like one device. Logical CPU devices stand in for the GPUs of a machine."""

import json

import numpy as np
import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(300)

TRAIN = """
    import json
    import numpy as np
    import tensorflow as tf
    import keras, tfdist
    from tensorflow.python.distribute import collective_all_reduce_strategy

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    # TensorFlow gives a worker all of its GPUs, but of CPU devices only the first.
    collective_all_reduce_strategy.CollectiveAllReduceExtended._initialize_local_devices = (
        lambda self, resolver, worker: (tuple(f"{worker}/device:CPU:{i}" for i in range(2)), "CPU")
    )
    strategy = tfdist.auto_strategy() if "TF_CONFIG" in __import__("os").environ else tf.distribute.get_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        rng = np.random.default_rng(1)
        model.set_weights([rng.uniform(-0.5, 0.5, size=w.shape) for w in model.get_weights()])
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.5), "mse", metrics=["mae"])
    x = rng.normal(size=(30, 6)).astype("float32")
    y = rng.normal(size=(30, 1)).astype("float32")
    # Batches of 7 rows do not divide by 4 replicas; the last has 2, so that two replicas get none.
    history = model.fit(x, y, batch_size=7, epochs=3, shuffle=False, verbose=0)
    print("result", json.dumps({
        "replicas": strategy.num_replicas_in_sync,
        "weights": [w.tolist() for w in model.get_weights()],
        "loss": history.history["loss"],
        "mae": history.history["mae"],
        "predictions": model.predict(x, batch_size=7, verbose=0).tolist(),
    }))
"""


def results(workers):
    with LocalCluster(workers=workers, script=TRAIN, time_limit_s=200) as cluster:
        return [json.loads(task.stdout.partition("result ")[2]) for task in cluster.join().values()]


def test_two_workers_with_two_devices_each():
    [right] = results(1)
    assert right["replicas"] == 1
    for result in results(2):
        assert result["replicas"] == 4
        for got, expected in zip(result["weights"], right["weights"], strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        for name in ("loss", "mae", "predictions"):
            np.testing.assert_allclose(result[name], right[name], rtol=1e-5, atol=1e-6)
