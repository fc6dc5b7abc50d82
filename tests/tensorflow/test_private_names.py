"""Every private name of Keras and TensorFlow that tfdist touches is there, and is named in one file."""

import ast
import importlib
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist
from tfdist.keras_compat import private_names
from tfdist.keras_compat.installation import all_overrides

PACKAGE = Path(tfdist.__file__).parent
FILE = Path(private_names.__file__)


def imported_names(tree):
    """(module, name) of each import of a library's private part."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and is_private(node.module):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if is_private(alias.name))


def is_private(module):
    return module.startswith(("keras.src", "tensorflow.python", "tensorflow.compiler", "tensorflow.core"))


NAMES = sorted(set(imported_names(ast.parse(FILE.read_text()))))


def test_there_are_names():
    assert len(NAMES) > 15


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_name_exists(module, name):
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        pytest.fail(str(error))
    if not hasattr(found, name):
        importlib.import_module(f"{module}.{name}")


def test_no_other_file_imports_private_names():
    others = {
        str(path.relative_to(PACKAGE)): found
        for path in PACKAGE.rglob("*.py")
        if path != FILE and (found := list(imported_names(ast.parse(path.read_text()))))
    }
    assert not others


def test_everything_in_all_is_there():
    for name in private_names.__all__:
        assert hasattr(private_names, name)


@pytest.mark.parametrize("override", all_overrides(), ids=lambda override: override.label)
def test_overridden_attribute_exists(override):
    assert hasattr(override.owner, override.name)


def test_private_attributes_of_keras():
    """Attributes that functions of the file read."""
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert private_names.variable_value(model.weights[0]) is model.weights[0]._value
    assert isinstance(private_names.variable_value(model.weights[0]), tf.Variable)
    assert private_names.model_strategy(model) is None
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        other = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD()
    assert private_names.model_strategy(other) is strategy
    assert private_names.optimizer_strategy(optimizer) is strategy


def test_attributes_of_the_array_adapter():
    adapter = private_names.ArrayDataAdapter(np.zeros((5, 2)), np.zeros(5), batch_size=2, shuffle=True)
    assert (adapter._batch_size, adapter._num_samples, adapter._shuffle) == (2, 5, True)
    assert len(adapter._inputs) == 2


def test_distributed_datasets_carry_their_function():
    def function(context):
        return tf.data.Dataset.range(4).batch(2)

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.distribute_datasets_from_function(function)._dataset_fn is function
