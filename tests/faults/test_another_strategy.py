"""A training that goes on from a checkpoint under other strategies: workers, parameter servers, one process."""

import os
import re
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
import keras, numpy as np
import tfdist
from tfdist.callbacks import FaultTolerantCheckpoint

directory, epochs, stops_after = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Stops(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch * 5 + batch + 1 == stops_after:
            os._exit(9)  # after an error in one process, the callback would save


def train():
    strategy = tfdist.auto_strategy()
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
    x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
    data = tfdist_data(x)
    checkpoint = FaultTolerantCheckpoint(directory, save_interval_steps=2, asynchronous=False)
    callbacks = [checkpoint, Stops()] if stops_after else [checkpoint]
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=callbacks)
    steps = int(model.optimizer.iterations.numpy())
    print("ended", type(strategy).__name__, steps, len(history.history["loss"]), flush=True)
    print("weights", *(f"{v:.5f}" for v in np.concatenate([w.ravel() for w in model.get_weights()])[:6]), flush=True)


def tfdist_data(x):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(40, seed=5).batch(8)


if __name__ == "__main__":
    tfdist.run(train)
"""


def run(tmp_path, options, epochs, stops_after=0):
    (tmp_path / "script.py").write_text(SCRIPT)
    arguments = ["script.py", "checkpoints", str(epochs), str(stops_after)]
    result = subprocess.run(
        [sys.executable, "-m", "tfdist", "run", *options, *arguments],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    text = f"{result.stdout}\n{result.stderr}"
    assert result.returncode == 0 or stops_after, text
    return text


@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_from_one_to_the_next(tmp_path):
    """5 steps an epoch. Each goes on in the midst of the epoch where the one before was interrupted."""
    run(tmp_path, ["--workers", "4"], epochs=2, stops_after=7)  # saved after step 6
    text = run(tmp_path, ["--workers", "2", "--ps", "1"], epochs=2)
    assert "Training goes on from" in text
    assert "epoch 2, 1 steps of it done" in text
    assert re.search(r"ended ParameterServerStrategyV2 10 2", text), text
    run(tmp_path, ["--workers", "2", "--ps", "1"], epochs=4, stops_after=17)  # saved after step 16
    text = run(tmp_path, ["--workers", "2"], epochs=4)
    assert "epoch 4, 1 steps of it done" in text
    assert len(re.findall(r"ended CollectiveAllReduceStrategy 20 4|ended MultiWorkerMirroredStrategy 20 4", text)) == 2
    text = run(tmp_path, ["--workers", "1"], epochs=5)
    assert "epoch 5, 0 steps of it done" in text
    assert re.search(r"ended \w+ 25 5", text), text
