"""Kinds of input: each position that can be found again is, and one that cannot is said."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from trainings import BATCH, ROWS, STEPS, Training, arrays, assert_equal, checkpoint, killed

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
]


def of_unknown_size():
    x, y = arrays()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda a, b: a[0] < 100.0)
    return dataset.shuffle(16, seed=5).batch(BATCH), {"shuffle": False}


def endless():
    x, y = arrays()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(16, seed=5).repeat().batch(BATCH)
    return dataset, {"shuffle": False, "steps_per_epoch": 4}


def longer_than_an_epoch():
    x, y = arrays()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(16, seed=5).batch(4, drop_remainder=True)
    return dataset, {"shuffle": False, "steps_per_epoch": 3, "epochs": 3}


def random_dataset():
    x, y = arrays()
    seeds = tf.data.Dataset.random(seed=4, rerandomize_each_iteration=True)
    dataset = tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices((x, y)), seeds))
    noisy = dataset.map(lambda row, s: (row[0] + tf.random.stateless_normal((5,), [s, 1]), row[1]))
    return noisy.batch(BATCH).prefetch(4), {"shuffle": False}


def from_generator():
    x, y = arrays()
    spec = (tf.TensorSpec((5,), tf.float32), tf.TensorSpec((1,), tf.float32))
    dataset = tf.data.Dataset.from_generator(lambda: zip(x, y, strict=True), output_signature=spec)
    return dataset.shuffle(16, seed=5).batch(BATCH), {"shuffle": False}


class Batches(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.x, self.y = arrays()
        self.order = np.arange(ROWS)
        self.random = np.random.default_rng(1)

    @property
    def num_batches(self):
        return STEPS

    def __getitem__(self, index):
        rows = self.order[index * BATCH : (index + 1) * BATCH]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self):
        self.random.shuffle(self.order)


def py_dataset():
    return Batches(), {"shuffle": False}


def shuffled_py_dataset():
    return Batches(), {"shuffle": True}


def generator():
    x, y = arrays()

    def batches():
        while True:
            yield x[:BATCH], y[:BATCH]

    return batches(), {"shuffle": False, "steps_per_epoch": 4}


@pytest.mark.parametrize(
    ("kind", "data", "step"),
    [
        pytest.param("none", of_unknown_size, 3, marks=pytest.mark.campaign),
        ("mirrored", of_unknown_size, STEPS),
        pytest.param("none", of_unknown_size, STEPS + 2, marks=pytest.mark.campaign),
        pytest.param("mirrored", endless, 6, marks=pytest.mark.campaign),
        ("none", longer_than_an_epoch, 4),
        pytest.param("none", random_dataset, STEPS + 3, marks=pytest.mark.campaign),
        ("mirrored", from_generator, STEPS + 3),
        pytest.param("none", py_dataset, STEPS + 3, marks=pytest.mark.campaign),
        ("none", shuffled_py_dataset, STEPS + 3),
    ],
)
def test_exact(tmp_path, kind, data, step):
    expected = Training(kind, data).run(checkpoint(tmp_path / "a")).result()
    killed(Training(kind, data), checkpoint(tmp_path / "b", save_interval_steps=1), step + 1)
    resumed = Training(kind, data).run(checkpoint(tmp_path / "b")).result()
    assert_equal(resumed, expected)


def test_generator(tmp_path, caplog):
    killed(Training("none", generator), checkpoint(tmp_path, save_interval_steps=1), 7)
    assert "come from a Python generator" in caplog.text
    training = Training("none", generator).run(checkpoint(tmp_path))
    assert "epoch 2, 0 steps of it done" in caplog.text
    assert len(training.history.epoch) == 4
    assert int(training.model.optimizer.iterations.numpy()) == 16


def test_random_numbers_of_the_pipeline(tmp_path, caplog):
    def noisy():
        x, y = arrays()
        dataset = tf.data.Dataset.from_tensor_slices((x, y))
        return dataset.map(lambda a, b: (a + tf.random.normal((5,)), b)).batch(BATCH), {"shuffle": False}

    Training("none", noisy, epochs=1).run(checkpoint(tmp_path))
    assert "The input pipeline calls RandomStandardNormal" in caplog.text


def test_steps_per_execution(tmp_path):
    def build():
        from trainings import build

        model = build()
        model.steps_per_execution = 2
        return model

    expected = Training("mirrored", build=build).run().result()
    killed(Training("mirrored", build=build), checkpoint(tmp_path, save_interval_steps=2), 5)
    resumed = Training("mirrored", build=build).run(checkpoint(tmp_path)).result()
    assert_equal(resumed, expected)
