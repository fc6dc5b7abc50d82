"""A worker of a parameter-server job is killed while it trains, and comes back at the same address."""

import json

import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(300)

TRAIN = """
    import json, os, pathlib, time
    import keras
    import numpy as np
    import tensorflow as tf
    import tfdist

    ROWS, EPOCHS, BATCH = 240, 3, 4

    class Rows(keras.metrics.Metric):
        def __init__(self, name, power):
            super().__init__(name=name)
            self.power = power
            self.total = self.add_variable((), initializer="zeros", name="total")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.total.assign_add(keras.ops.sum(keras.ops.cast(y_true, "float32") ** self.power))

        def result(self):
            return self.total.value + 0

    class Pace(keras.callbacks.Callback):
        '''Tells the test where training is, and does not let it end before the fault.'''

        def on_train_batch_end(self, batch, logs=None):
            self.step = getattr(self, "step", 0) + 1
            print(f"step {self.step}", flush=True)
            fault = pathlib.Path(os.environ["FAULT_NOTE"])
            deadline = time.monotonic() + 60
            while self.step == 60 and not fault.exists() and time.monotonic() < deadline:
                time.sleep(0.02)

    def train():
        strategy = tfdist.parameter_server_strategy()
        x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
        y = np.arange(ROWS, dtype="float32")[:, None]
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
            metrics = [Rows("rows", 0), Rows("row_sum", 1)]
            model.compile(keras.optimizers.SGD(1e-6), "mse", metrics=metrics)
        history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[Pace()])
        logs = {name: [float(v) for v in values] for name, values in history.history.items()}
        print("result", json.dumps([int(model.optimizer.iterations.numpy()), logs]), flush=True)

    if __name__ == "__main__":
        tfdist.run(train)
"""


@pytest.mark.parametrize("killed", [pytest.param("worker 0", marks=pytest.mark.campaign), "worker 1"])
def test_a_worker_that_dies_and_comes_back(tmp_path, killed):
    note = tmp_path / "fault"
    with LocalCluster(workers=2, ps=1, script=TRAIN, env={"FAULT_NOTE": str(note)}, time_limit_s=200) as cluster:
        cluster.wait_for_output("chief", "step 40\n")
        before = cluster.pid(killed)
        cluster.restart(killed)
        assert cluster.pid(killed) != before
        assert "result" not in cluster.stdout("chief"), "the kill came after training"
        assert "step 70\n" not in cluster.stdout("chief")
        note.touch()
        chief = cluster.join("chief")["chief"]
    assert chief.returncode == 0
    iterations, logs = json.loads(chief.stdout.partition("result ")[2])
    # A step that was lost with its worker, but after it had updated the weights, is counted by the optimizer twice.
    assert 180 <= iterations <= 180 + 4
    assert logs["rows"] == [240.0] * 3
    assert logs["row_sum"] == [sum(range(240))] * 3


def test_a_parameter_server_that_dies(tmp_path):
    """It held weights, so the job ends with an error that names it."""
    note = tmp_path / "fault"
    with LocalCluster(workers=2, ps=1, script=TRAIN, env={"FAULT_NOTE": str(note)}, time_limit_s=200) as cluster:
        cluster.wait_for_output("chief", "step 40\n")
        cluster.kill("ps 0")
        note.touch()
        chief = cluster.join("chief", check=False)["chief"]
    assert chief.returncode not in (0, None)
    assert "ps 0" in chief.stderr
