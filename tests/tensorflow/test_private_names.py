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


def test_the_epoch_at_which_fit_begins():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert private_names.initial_epoch(model) is None
    private_names.set_initial_epoch(model, 2)
    history = model.fit(np.zeros((4, 2)), np.zeros((4, 1)), epochs=3, verbose=0)
    assert history.epoch == [2]
    assert private_names.epoch_logs(model, {"loss": 1.0}).keys() == {"loss"}


def test_attributes_of_callbacks_with_a_state(tmp_path):
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    made = {
        keras.callbacks.ModelCheckpoint: (str(tmp_path / "x.keras"),),
        keras.callbacks.CSVLogger: (str(tmp_path / "x.csv"),),
        keras.callbacks.TensorBoard: (str(tmp_path),),
    }
    for kind, attributes in private_names.CALLBACK_ATTRIBUTES.items():
        callback = kind(*made.get(kind, ()))
        callback.set_model(model)
        if kind in (keras.callbacks.EarlyStopping, keras.callbacks.History):
            callback.on_train_begin()
        if kind is keras.callbacks.ModelCheckpoint:
            callback.on_epoch_begin(0)
        for attribute in attributes:
            if (kind, attribute) != (keras.callbacks.ReduceLROnPlateau, "best"):  # made by `on_train_begin`
                assert hasattr(callback, attribute), (kind, attribute)


def test_the_state_of_an_iterator():
    dataset = tf.data.Dataset.range(20).shuffle(10, seed=1).batch(2)
    iterator, other = iter(dataset), iter(dataset)
    next(iterator)
    state = private_names.serialize_iterator(iterator)
    assert state.dtype == tf.variant
    assert b"epoch_num_random_samples" in tf.io.serialize_tensor(state).numpy()
    private_names.deserialize_iterator(other, state)
    np.testing.assert_array_equal(next(other), next(iterator))


def test_operations_with_a_state_of_their_own():
    def operation(function):
        return private_names.stateful_operation(iter(tf.data.Dataset.range(3).map(function)))

    assert operation(lambda i: i + 1) is None
    assert operation(lambda i: tf.random.uniform(())) == "RandomUniform"
    assert operation(lambda i: tf.random.stateless_uniform((), [1, i])) is None


def test_sources_in_python():
    def batches():
        yield np.zeros((2, 2)), np.zeros((2, 1))

    make = private_names.EpochIterator
    assert private_names.has_python_source(make(batches()).data_adapter)
    assert not private_names.has_python_source(make(np.zeros((4, 2))).data_adapter)
    assert not private_names.has_python_source(make(tf.data.Dataset.range(4).batch(2)).data_adapter)


def test_generators_of_random_numbers():
    keras.utils.set_random_seed(3)
    before = private_names.eager_random().getstate()
    keras.random.uniform(())
    tf.random.uniform(())
    assert private_names.eager_random().getstate() != before
    assert private_names.keras_global_seeds().state.shape == (2,)
    tf.random.set_global_generator(tf.random.Generator.from_seed(1))
    assert private_names.global_generator().state.shape == (3,)
