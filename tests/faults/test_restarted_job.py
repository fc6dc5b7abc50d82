"""`tfdist run --max-restarts`: a job whose worker is killed goes on from its checkpoint to the same end."""

import os
import re
import subprocess
import sys

import pytest

SCRIPT = """
import hashlib, os, signal, sys
import keras, numpy as np
import tfdist
from tfdist.callbacks import FaultTolerantCheckpoint

directory, kills = sys.argv[1:]


class Dies(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        task, attempt = os.environ["TFDIST_TASK"], os.environ["TFDIST_ATTEMPT"]
        if kills == "kills" and task == "worker 1" and attempt == "0" and self.model.optimizer.iterations.numpy() == 5:
            os.kill(os.getpid(), signal.SIGKILL)


def train():
    strategy = tfdist.auto_strategy()
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    x = np.random.default_rng(0).normal(size=(30, 4)).astype("float32")
    checkpoint = FaultTolerantCheckpoint(directory, save_interval_steps=1, asynchronous=False)
    history = model.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0, callbacks=[checkpoint, Dies()])
    weights = b"".join(w.tobytes() for w in model.get_weights())
    print("weights", hashlib.sha256(weights).hexdigest(), "losses", history.history["loss"], flush=True)


if __name__ == "__main__":
    tfdist.run(train)
"""


def run(tmp_path, name, *arguments):
    (tmp_path / "script.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "-m", "tfdist", "run", "--workers", "2", "--max-restarts", "1", "script.py", name, *arguments],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(600)
def test_a_killed_worker(tmp_path):
    undisturbed, killed = run(tmp_path, "a", "lives"), run(tmp_path, "b", "kills")
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert killed.returncode == 0, killed.stderr
    assert "[tfdist] worker 1 was killed by SIGKILL (signal 9)\n" in killed.stderr
    assert "attempt 1 follows" in killed.stderr
    assert "Training goes on from" in killed.stderr
    ends = [set(re.findall(r"weights .*", result.stdout)) for result in (undisturbed, killed)]
    assert len(ends[0]) == 1, undisturbed.stdout
    assert ends[0] == ends[1]
