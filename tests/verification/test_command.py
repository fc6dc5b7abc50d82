"""`tfdist verify SCRIPT`, and `tfdist.verify` where a user calls it, with TensorFlow in use."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import keras, numpy as np, tfdist

def train():
    strategy = tfdist.auto_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(6, activation="tanh", name="hidden"),
                                  keras.layers.Dropout(0.5), keras.layers.Dense(1, name="head")])
        FAULT = "--fault" in sys.argv
        norm = keras.layers.BatchNormalization(name="norm", synchronized=not FAULT)
        model = keras.Sequential([keras.layers.Input((4,)), norm, *model.layers])
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    x = np.random.normal(size=(22, 4)).astype("float32")
    model.fit(x, x.sum(axis=1, keepdims=True), batch_size=8, epochs=3, callbacks=[keras.callbacks.CSVLogger("log.csv")])
    print("must not be reached")

if __name__ == "__main__":
    tfdist.run(train)
"""


def verify(directory, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "tfdist", "verify", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.campaign
def test_healthy_script(script):
    done = verify(script.parent, "--steps", "3", script.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tfdist verify: same as one device, 3 steps on 2 replicas" in done.stdout
    assert "must not be reached" not in done.stdout
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]  # its callbacks did not run


def test_script_that_differs(script):
    done = verify(script.parent, "--mirrored", "2", "--steps", "2", script.name, "--fault")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "tfdist verify: DIFFERS from one device" in done.stdout
    assert "BatchNormalization(synchronized=True)" in done.stdout


def test_script_without_fit(tmp_path):
    (tmp_path / "nothing.py").write_text("print('no training here')")
    done = verify(tmp_path, "--mirrored", "2", "nothing.py")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "did not train with model.fit" in done.stderr


PROGRAM = """
import sys
import keras, tensorflow as tf, tfdist

print(tf.reduce_sum(tf.ones(3)))     # TensorFlow is in use, as in a notebook
x = tf.random.normal((20, 3))
dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1] + 1)).shuffle(20).batch(8)

class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((y - self(x, training=True)) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}

def build():
    inputs = keras.Input((3,))
    model = Own(inputs, keras.layers.Dense(1, name="head")(inputs))
    model.compile("sgd")
    return model

report = tfdist.verify(build, dataset, steps=2)
print(report)
sys.exit(report.status)
"""


@pytest.mark.campaign
def test_functions_and_classes_of_a_script_without_a_module(tmp_path):
    """Read from standard input, so that no child can import it: as the cells of a notebook."""
    done = subprocess.run(
        [sys.executable, "-"], input=PROGRAM, cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "gradient head/kernel (and 1 more: head/bias)" in done.stdout
    assert "wrong loss scaling" in done.stdout
