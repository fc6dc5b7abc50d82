"""How a watched `fit` begins and ends: completed, asked to end, failed, another model, another strategy."""

import functools
import os
import shutil
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from trainings import STEPS, Killed, Training, arrays, assert_equal, build, checkpoint, killed, usual_callbacks

from tfdist.callbacks import FaultTolerantCheckpoint
from tfdist.errors import ArgumentError, CheckpointError
from tfdist.snapshots import CheckpointStore

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    # A CSVLogger of a training that was killed has not closed its file.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning"),
]


@functools.cache
def undisturbed(kind="none"):
    return Training(kind).run().result()


def steps_in(directory):
    return sorted(int(path.name.split("-")[1]) for path in directory.glob("step-*"))


def test_a_training_that_has_ended_trains_nothing_more(tmp_path, caplog):
    Training().run(checkpoint(tmp_path))
    training = Training()
    step_counter = Steps()
    training.run(checkpoint(tmp_path), step_counter)
    assert step_counter.count == 0
    assert "Nothing is left to train" in caplog.text
    assert_equal(training.result(), undisturbed())


class Steps(keras.callbacks.Callback):
    count = 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1


def no_callbacks():
    return []


def test_more_epochs(tmp_path):
    expected = Training(callbacks=no_callbacks, epochs=3).run(checkpoint(tmp_path / "a")).result()
    Training(callbacks=no_callbacks, epochs=2).run(checkpoint(tmp_path / "b"))
    counter = Steps()
    found = Training(callbacks=no_callbacks, epochs=3).run(checkpoint(tmp_path / "b"), counter).result()
    assert counter.count == STEPS
    np.testing.assert_array_equal(found["epochs"], [0, 1, 2])
    np.testing.assert_array_equal(found["history loss"][:2], expected["history loss"][:2])


def test_a_second_fit_of_a_process(tmp_path):
    def both(kill_at=None):
        training = Training(callbacks=no_callbacks, epochs=2)
        training.run(checkpoint(tmp_path))
        try:
            return training.run(checkpoint(tmp_path), kill_at=kill_at).result()
        except Killed:
            return None

    assert both(kill_at=STEPS + 2) is None
    found = both()
    other = Training(callbacks=no_callbacks, epochs=2).run()
    assert_equal(found, other.run().result())


def test_a_fit_that_is_made_again_in_its_process(tmp_path):
    """As in a notebook, after an interruption."""
    training = Training()
    with pytest.raises(Killed):
        training.run(checkpoint(tmp_path, save_interval_steps=1), kill_at=STEPS + 2)
    assert_equal(training.run(checkpoint(tmp_path)).result(), undisturbed())


def test_rows_of_a_csv_file(tmp_path):
    def callbacks(name):
        return lambda: [keras.callbacks.CSVLogger(tmp_path / name)]

    Training(callbacks=callbacks("expected.csv")).run(checkpoint(tmp_path / "a"))
    killed(
        Training(callbacks=callbacks("found.csv")),
        checkpoint(tmp_path / "b", save_interval_steps=STEPS + 2, save_each_epoch=False),
        2 * STEPS + 3,
    )
    assert len((tmp_path / "found.csv").read_text().splitlines()) == 3
    Training(callbacks=callbacks("found.csv")).run(checkpoint(tmp_path / "b"))
    assert (tmp_path / "found.csv").read_text() == (tmp_path / "expected.csv").read_text()


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGUSR1", marks=pytest.mark.campaign)])
def test_asked_to_end(tmp_path, name):
    class Ask(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations.numpy() == STEPS + 3:
                os.kill(os.getpid(), getattr(signal, name))

    before = signal.getsignal(getattr(signal, name))
    with pytest.raises(SystemExit) as ended:
        Training().run(checkpoint(tmp_path), Ask())
    assert ended.value.code == 75
    assert signal.getsignal(getattr(signal, name)) is before
    assert max(steps_in(tmp_path)) == STEPS + 3
    assert_equal(Training().run(checkpoint(tmp_path)).result(), undisturbed())


def test_an_error_between_steps(tmp_path):
    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations.numpy() == STEPS + 2:
                raise ValueError("of the user's")

    with pytest.raises(ValueError, match="of the user's"):
        Training().run(checkpoint(tmp_path), Fail())
    assert max(steps_in(tmp_path)) == STEPS + 2
    assert_equal(Training().run(checkpoint(tmp_path)).result(), undisturbed())


def test_an_error_in_a_step(tmp_path):
    """Nobody knows how much of the step was done: what was saved before counts."""

    def failing():
        x, y = arrays()
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
        fine = dataset.take(3).concatenate(dataset.map(lambda a, b: (tf.debugging.check_numerics(a / 0.0, "x"), b)))
        return fine, {"shuffle": False}

    with pytest.raises(tf.errors.InvalidArgumentError):
        Training(data=failing).run(checkpoint(tmp_path, save_interval_steps=2))
    assert steps_in(tmp_path) == [2]


def test_another_model(tmp_path):
    def other():
        model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(9), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    killed(Training(), checkpoint(tmp_path, save_interval_steps=1), 4)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(CheckpointError) as error:
        Training(build=other, callbacks=no_callbacks).run(checkpoint(tmp_path))
    assert "model/sequential/dense/kernel: saved (5, 8) float32, now (5, 9) float32" in str(error.value)
    assert "model/sequential/batch_normalization/gamma: saved (8,) float32, now none" in str(error.value)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("before", "after"), [("none", "mirrored"), pytest.param("mirrored", "none", marks=pytest.mark.campaign)]
)
def test_another_strategy(tmp_path, before, after):
    """Rows come as before; dropout draws other numbers with another number of replicas."""

    def build_without_dropout():
        model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae"])
        return model

    def training(kind):
        return Training(kind, build=build_without_dropout, callbacks=no_callbacks)

    expected = training(before).run().result()
    killed(training(before), checkpoint(tmp_path, save_interval_steps=1), STEPS + 3)
    found = training(after).run(checkpoint(tmp_path)).result()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.campaign
def test_without_a_seed_of_the_users(tmp_path):
    """What tfdist draws in its place is saved: two runs that go on from one checkpoint are equal."""

    killed(Training(seed=None), checkpoint(tmp_path, save_interval_steps=STEPS + 2, keep_newest=None), STEPS + 4)
    # The seeds of dropout and the weights are in the checkpoint.
    first = Training(seed=None).run(checkpoint(tmp_path, save_each_epoch=False)).result()
    for path in tmp_path.glob("step-*"):
        if int(path.name.split("-")[1]) > STEPS + 2:
            shutil.rmtree(path)
    second = Training(seed=None).run(checkpoint(tmp_path, save_each_epoch=False)).result()
    assert_equal(second, first)


def test_weights_are_read_by_tensorflow_alone(tmp_path):
    training = Training(callbacks=no_callbacks, epochs=1).run(checkpoint(tmp_path))
    snapshot, _ = CheckpointStore(tmp_path).restore()
    for name, value in zip(snapshot.record["weight_names"], training.model.get_weights(), strict=True):
        np.testing.assert_array_equal(snapshot.tensors[name], value)


def test_two_of_them(tmp_path):
    with pytest.raises(ArgumentError, match="Only one callback"):
        Training().run(checkpoint(tmp_path / "a"), checkpoint(tmp_path / "b"))


def test_a_strategy_that_tfdist_did_not_make(tmp_path):
    watcher = checkpoint(tmp_path)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = build()
    with pytest.raises(ArgumentError, match="did not make"):
        model.fit(*arrays(), callbacks=[watcher], verbose=0)


@pytest.mark.parametrize(
    "arguments", [{"save_interval_steps": 0}, {"save_interval_s": -1.0}, {"signals": ["SIGNOTHING"]}, {"keep_best": 1}]
)
def test_arguments(tmp_path, arguments):
    with pytest.raises(ArgumentError):
        FaultTolerantCheckpoint(tmp_path, **arguments)


def test_a_state_that_cannot_be_saved(tmp_path):
    class Odd(keras.callbacks.Callback):
        def get_state(self):
            return {"what": object()}

        def set_state(self, state):
            raise AssertionError

    with pytest.raises(ArgumentError, match="state of a callback cannot be saved"):
        Training(callbacks=lambda: [*usual_callbacks(), Odd()]).run(checkpoint(tmp_path))
