"""Under parameter servers, a slow worker makes fewer steps, and nobody waits for it."""

import json

import pytest
from throttled_process import throttled

from tfdist.testing import LocalCluster

pytestmark = [pytest.mark.timeout(300), pytest.mark.campaign]

TRAIN = """
    import json
    import keras
    import numpy as np
    import tfdist

    class Begun(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 20 and not hasattr(self, "said"):
                self.said = True
                print("begun", flush=True)

    def train():
        strategy = tfdist.parameter_server_strategy()
        x = np.random.default_rng(0).normal(size=(1200, 32)).astype("float32")
        with strategy.scope():
            layers = [keras.layers.Dense(256) for _ in range(3)]
            model = keras.Sequential([keras.layers.Input((32,)), *layers, keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        monitor = tfdist.callbacks.LoadBalanceMonitor()
        model.fit(x, x[:, :1] * 0, batch_size=8, epochs=2, verbose=0, callbacks=[monitor, Begun()])
        load = monitor.report().load
        said = {"steps": load.num_steps, "bytes": load.server_bytes, "report": str(monitor.report())}
        print("result", json.dumps(said), flush=True)

    if __name__ == "__main__":
        tfdist.run(train)
"""


def run(share):
    with LocalCluster(workers=2, ps=2, script=TRAIN, env={"TF_CPP_MIN_LOG_LEVEL": "2"}, time_limit_s=250) as cluster:
        cluster.wait_for_output("chief", "begun")
        with throttled(cluster.pid("worker 1"), share) as count:
            results = cluster.join()
    assert count[0] > 10  # the fault fired
    chief = results["chief"]
    return json.loads(chief.stdout.partition("result ")[2]), chief.stderr


def test_work_goes_to_whoever_is_free():
    found, said = run(0.3)
    steps = {int(worker): count for worker, count in found["steps"].items()}
    assert sum(steps.values()) == 300, found["report"]
    assert steps[1] < 0.7 * steps[0], found["report"]
    assert "worker 1 is slow: a step takes " in said
    assert "nobody waits for it" in said
    assert sum(found["bytes"]) == 4 * (32 * 256 + 256 + 2 * (256 * 256 + 256) + 256 + 1)
