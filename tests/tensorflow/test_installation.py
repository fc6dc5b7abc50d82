"""The overrides come with the first strategy, once, act under tfdist's strategies alone, and go without a trace."""

import hashlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist
from tfdist.keras_compat import installation
from tfdist.keras_compat.installation import all_overrides, install, is_installed, uninstall


def attributes():
    """What each overridden attribute is now, and whether its owner has it itself."""
    return [
        (o.label, o.name in vars(o.owner), vars(o.owner).get(o.name), getattr(o.owner, o.name)) for o in all_overrides()
    ]


def test_labels_are_unique():
    labels = [override.label for override in all_overrides()]
    assert len(set(labels)) == len(labels) > 20


def test_every_override_says_why_and_for_which_versions():
    for override in all_overrides():
        assert override.answers.endswith("."), override.label
        assert "Keras 3." in override.verified_on, override.label


def test_uninstall_restores_everything():
    before = attributes()
    install()
    assert is_installed()
    assert not any(now[3] is was[3] for now, was in zip(attributes(), before, strict=True))
    uninstall()
    assert not is_installed()
    for now, was in zip(attributes(), before, strict=True):
        assert now[:2] == was[:2]
        assert now[2] is was[2]


def test_install_twice_is_install_once():
    before = attributes()
    install()
    once = attributes()
    install()
    assert all(now[3] is was[3] for now, was in zip(attributes(), once, strict=True))
    uninstall()
    uninstall()
    assert all(now[2] is was[2] for now, was in zip(attributes(), before, strict=True))


def test_a_factory_installs():
    assert not is_installed()
    tfdist.mirrored_strategy()
    assert is_installed()


def test_auto_strategy_that_finds_one_device_leaves_keras_alone(monkeypatch):
    one = tf.config.list_logical_devices("CPU")[:1]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: one if kind == "CPU" else [])
    assert tfdist.auto_strategy() is tf.distribute.get_strategy()
    assert not is_installed()


def test_importing_tfdist_changes_nothing():
    code = """
import keras, tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.backend.tensorflow.core import Variable
from keras.src.optimizers.base_optimizer import BaseOptimizer
owners = (TensorFlowTrainer, Variable, BaseOptimizer, tf.GradientTape, keras.Model)
before = [dict(vars(owner)) for owner in owners]
import tfdist, tfdist.strategies, tfdist.keras_compat.installation
tfdist.mirrored_strategy
assert [dict(vars(owner)) for owner in owners] == before
print("nothing changed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "nothing changed" in done.stdout, done.stderr


def train(strategy=None, ema_overwrite_frequency=2):
    """Trains a little of everything, in batches that two replicas can halve; returns a digest of all numbers."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 4)).astype("float32"), rng.normal(size=(20, 1)).astype("float32")
    with (strategy or tf.distribute.get_strategy()).scope():
        model = keras.Sequential(
            [
                keras.layers.Input((4,)),
                keras.layers.Dense(5),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(1, kernel_regularizer="l2"),
            ]
        )
        optimizer = keras.optimizers.AdamW(
            0.01, clipnorm=0.5, use_ema=True, ema_overwrite_frequency=ema_overwrite_frequency
        )
        model.compile(optimizer, "mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=8, epochs=2, validation_split=0.2, verbose=0)
    parts = [*model.get_weights(), *(np.asarray(v) for v in model.optimizer.variables), model.predict(x, verbose=0)]
    parts += [np.asarray(values) for values in history.history.values()]
    parts.append(np.asarray(model.evaluate(x, y, verbose=0)))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def test_a_model_without_a_strategy_is_equal_bit_for_bit():
    stock = train()
    install()
    assert train() == stock


def test_a_strategy_that_tfdist_did_not_make_is_left_alone():
    """Without overwriting by averages, which stock Keras cannot do under a strategy."""
    stock = train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), None)
    install()
    assert train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), None) == stock


@pytest.mark.parametrize(
    ("version", "warned"), [("2.17.1", True), ("2.18.0", False), ("2.21.3", False), ("2.22.0", True), ("3.0.0", True)]
)
def test_unverified_versions(monkeypatch, version, warned):
    inside = {"keras": "3.10.0", "tensorflow": version}
    monkeypatch.setattr(installation.importlib.metadata, "version", inside.__getitem__)
    problems = installation.unverified_versions()
    assert len(problems) == warned
    if warned:
        assert f"this is tensorflow {version}" in problems[0]
        assert "2.18 to 2.21" in problems[0]


@pytest.mark.parametrize(("is_chief", "count"), [(True, 1), (False, 0)])
def test_one_warning_from_the_chief(monkeypatch, is_chief, count):
    warnings = []
    monkeypatch.setattr(installation, "unverified_versions", lambda: ["a version"])
    monkeypatch.setattr(installation.logging, "warning", lambda *args: warnings.append(args))
    install(is_chief=is_chief)
    install(is_chief=is_chief)
    assert len(warnings) == count
