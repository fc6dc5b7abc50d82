"""Under parameter servers: the coordinator, a worker or a parameter server is killed, and the job started again."""

import collections
import json
import re

import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(600)

ROWS, BATCH, EPOCHS = 120, 4, 3
STEPS = ROWS // BATCH

TRAIN = """
    import json, os, pathlib, signal, sys
    import keras
    import numpy as np
    import tfdist
    from tfdist.callbacks import FaultTolerantCheckpoint

    ROWS, BATCH, EPOCHS = 120, 4, 3
    DIRECTORY, KILL_AT = pathlib.Path(sys.argv[1]), int(sys.argv[2])

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
        '''Holds training at a step until the fault has come.'''

        step = 0

        def on_train_batch_end(self, batch, logs=None):
            self.step += 1
            print(f"step {self.step}", flush=True)
            if self.step == KILL_AT:
                print("waiting", flush=True)
                signal.alarm(60)
                signal.pause()

    def train():
        keras.utils.set_random_seed(1)
        strategy = tfdist.parameter_server_strategy()
        x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
        y = np.arange(ROWS, dtype="float32")[:, None]
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
            metrics = [Rows("rows", 0), Rows("row_sum", 1)]
            model.compile(keras.optimizers.SGD(1e-6, momentum=0.5), "mse", metrics=metrics)
        checkpoint = FaultTolerantCheckpoint(DIRECTORY, save_interval_steps=7, asynchronous=False)
        history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[checkpoint, Pace()])
        logs = {name: [float(v) for v in values] for name, values in history.history.items()}
        print("result", json.dumps([int(model.optimizer.iterations.numpy()), logs]), flush=True)

    if __name__ == "__main__":
        tfdist.run(train)
"""


def run(directory, kill_at, killed=None):
    with LocalCluster(workers=2, ps=1, script=TRAIN, args=[str(directory), str(kill_at)], time_limit_s=250) as cluster:
        if killed is None:
            return cluster.join("chief")["chief"]
        cluster.wait_for_output("chief", "waiting")
        cluster.kill(killed)
        assert cluster.returncode(killed) == -9
        assert "result" not in cluster.stdout("chief")
        return None


@pytest.mark.campaign
@pytest.mark.parametrize("killed", ["chief", "ps 0"])
def test_a_job_that_is_started_again(tmp_path, killed):
    """Every row counts once an epoch in what goes on, and no checkpointed step is lost."""
    kill_at = STEPS + 12
    assert run(tmp_path, kill_at, killed) is None
    result = run(tmp_path, 0)
    [(epoch, steps)] = re.findall(r"epoch (\d+), (\d+) steps of it done", result.stderr)
    saved = (int(epoch) - 1) * STEPS + int(steps)
    assert saved == (kill_at - 1) // 7 * 7, "the last checkpoint before the kill"
    iterations, logs = json.loads(result.stdout.partition("result ")[2])
    assert iterations == EPOCHS * STEPS
    assert logs["rows"] == [float(ROWS)] * EPOCHS
    assert logs["row_sum"] == [float(sum(range(ROWS)))] * EPOCHS
    counts = collections.Counter(re.findall(r"step (\d+)\n", result.stdout))
    assert len(counts) == EPOCHS * STEPS - saved
