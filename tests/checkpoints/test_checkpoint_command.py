"""`tfdist checkpoint`: what it prints, what it ends with, and what it leaves alone."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from snapshots_of_a_step import snapshot_of

from tfdist.checkpointing import Retention
from tfdist.cli.main import main
from tfdist.snapshots import CheckpointStore, Snapshot
from tfdist.snapshots.__main__ import main as main_with_tensorflow

LIMIT_S = 120


@pytest.fixture
def directory(tmp_path):
    """Three checkpoints; the names by step."""
    store = CheckpointStore(tmp_path / "ckpt", retention=Retention(keep_newest=None))
    for step in (7, 8, 9):
        assert store.save(snapshot_of(step), step=step, epoch=0, wait=True)
    store.close()
    return tmp_path / "ckpt"


def named(directory, step):
    return next(directory.glob(f"step-{step:09d}-*"))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_list(directory, capsys):
    assert main(["checkpoint", "list", str(directory)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["checkpoint", "step", "epoch", "saved", "(UTC)", "size", "tasks", "state"]
    assert [line.split()[0] for line in lines[1:]] == [named(directory, step).name for step in (9, 8, 7)]
    assert lines[1].endswith("complete  loss=0.1")
    (named(directory, 8) / "state.index").unlink()
    (named(directory, 7) / "manifest.json").unlink()
    assert main(["checkpoint", "list", str(directory)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "damaged: " in lines[2]
    assert "state.index: No such file" in lines[2]
    assert lines[3].endswith("unfinished")


def test_verify(directory, capsys):
    assert main(["checkpoint", "verify", str(directory)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 good, 0 damaged"
    flip(named(directory, 8) / "state.data-00000-of-00001")
    assert main(["checkpoint", "verify", str(directory)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"{named(directory, 8).name}: damaged: ")
    assert "state.data-00000-of-00001: its bytes are other ones" in lines[1]
    assert lines[-1] == "2 good, 1 damaged"


def test_prune(directory, capsys):
    names = {step: named(directory, step).name for step in (7, 8, 9)}
    flip(directory / names[9] / "state.index")  # it looks complete, and must not be the one that is kept
    before = sorted(os.listdir(directory))
    assert main(["checkpoint", "prune", str(directory), "--keep", "1", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"would remove {names[7]}"
    assert lines[1].startswith(f"left {names[9]}, which is damaged")
    assert lines[2] == f"kept {names[8]}"
    assert sorted(os.listdir(directory)) == before
    assert main(["checkpoint", "prune", str(directory), "--keep", "1", "--damaged"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"removed {names[7]}", f"removed {names[9]}, which is damaged", f"kept {names[8]}"]
    assert [path.name for path in directory.glob("step-*")] == [names[8]]


def test_prune_with_nothing_good_removes_nothing(directory, capsys):
    for step in (7, 8, 9):
        flip(named(directory, step) / "state.json")
    assert main(["checkpoint", "prune", str(directory), "--keep", "1", "--damaged"]) == 1
    assert capsys.readouterr().out == "no checkpoint is good; nothing is removed\n"
    assert len(list(directory.glob("step-*"))) == 3


def test_a_url(tmp_path, capsys):
    url = f"ram://{tmp_path.name}/ckpt"
    store = CheckpointStore(url, retention=Retention(keep_newest=None))
    for step in (7, 8):
        assert store.save(snapshot_of(step), step=step, epoch=0, wait=True)
    store.close()
    assert main_with_tensorflow(["verify", url]) == 0
    assert capsys.readouterr().out.endswith("2 good, 0 damaged\n")
    assert main_with_tensorflow(["prune", url, "1", "0", "0"]) == 0
    assert main_with_tensorflow(["list", url]) == 0
    assert capsys.readouterr().out.count("step-") == 3  # removed, kept, listed
    assert main_with_tensorflow(["list", f"{url}-none"]) == 2
    assert "There is no such directory" in capsys.readouterr().err


@pytest.fixture
def model():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(3)(inputs))
    return keras.Model(inputs, keras.layers.Dropout(0.5)(x))


def snapshot_of_model(model):
    weights = {f"model/{number}": value for number, value in enumerate(model.get_weights())}
    return Snapshot(weights, record={"model_config": model.to_json(), "weight_names": list(weights)})


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # Keras's, with NumPy 2
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_export(compression, model, tmp_path, capsys):
    store = CheckpointStore(tmp_path / "ckpt", compression=compression)
    store.save(snapshot_of_model(model), step=7, epoch=0, wait=True)
    store.close()
    for file in ("m.keras", "m.weights.h5", "m.ckpt"):
        assert main_with_tensorflow(["export", store.directory, str(tmp_path / file), ""]) == 0
        assert main_with_tensorflow(["export", store.directory, str(tmp_path / file), ""]) == 2
        assert "Expected: a path where nothing is yet" in capsys.readouterr().err
    data = np.ones((2, 4), np.float32)
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(data), model(data))
    other = keras.models.clone_model(model)
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(other(data), model(data))
    reader = tf.train.load_checkpoint(str(tmp_path / "m.ckpt"))
    np.testing.assert_array_equal(reader.get_tensor("model/0"), model.get_weights()[0])


def test_export_of_what_has_no_model(directory, tmp_path, capsys):
    for file, expected in (
        ("m.keras", "no configuration of the model"),
        ("m.h5", "a local path that ends in .keras, .weights.h5 or .ckpt"),
    ):
        assert main_with_tensorflow(["export", str(directory), str(tmp_path / file), ""]) == 2
        assert expected in capsys.readouterr().err
    name = named(directory, 7).name
    assert main_with_tensorflow(["export", str(directory), str(tmp_path / "m.ckpt"), name]) == 0
    assert tf.train.load_checkpoint(str(tmp_path / "m.ckpt")).get_tensor("iterations") == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt", "m.ckpt.data-00000-of-00001", "m.ckpt.index"]


def test_export_runs_no_code_of_the_checkpoint(tmp_path, capsys):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Lambda(lambda x: x + 1)])
    store = CheckpointStore(tmp_path / "ckpt")
    store.save(snapshot_of_model(model), step=7, epoch=0, wait=True)
    store.close()
    assert main_with_tensorflow(["export", store.directory, str(tmp_path / "m.keras"), ""]) == 2
    assert "safe_mode" in capsys.readouterr().err


def test_the_command_itself(directory, tmp_path):
    url = f"file://{directory}"  # a URL is looked at in a process of its own
    command = [sys.executable, "-m", "tfdist", "checkpoint", "export", url, str(tmp_path / "m.ckpt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/m.ckpt: the weights of {named(directory, 9).name}\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list"], "DIR"),
        (["list", "no_such_directory"], "There is no such directory of checkpoints"),
        (["verify", "no_such_directory"], "There is no such directory of checkpoints"),
        (["prune", "."], "--keep"),
        (["prune", ".", "--keep", "0"], "--keep cannot be 0"),
        (["prune", "no_such_directory", "--keep", "1"], "There is no such directory of checkpoints"),
        (["shuffle"], "invalid choice: 'shuffle'"),
        ([], "ACTION"),
    ],
)
def test_what_cannot_be_done(arguments, expected, capsys):
    assert main(["checkpoint", *arguments]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n  ") == 3  # Received, Expected, Fix
