"""Every kind of input is put together again as one device would read it, so that models on it can be compared."""

import keras
import models
import numpy as np
import pytest
import tensorflow as tf

from tfdist.errors import ArgumentError
from tfdist.verification import Cause

L = keras.layers
ROWS, FEATURES = 13, 6
X = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype("float32")
Y = X.sum(axis=1, keepdims=True) + 1


def dense():
    return models.network(features=FEATURES)


class MeanOfEmbeddings(keras.Model):
    """For ragged rows of token numbers."""

    def __init__(self):
        super().__init__()
        self.table = self.add_weight(shape=(9, 3), initializer="uniform", name="table")
        self.head = L.Dense(1, name="head")

    def build(self, shape):
        self.head.build((None, 3))

    def call(self, tokens):
        rows = tf.gather(tf.convert_to_tensor(self.table), tokens)
        return self.head(tf.reduce_mean(rows, axis=1))  # of Keras's dense stand-in, too, with which it builds


def mean_of_embeddings():
    model = MeanOfEmbeddings()
    model.compile("sgd", "mse")
    return model


def masked_tokens():
    model = keras.Sequential([L.Embedding(9, 3, mask_zero=True), L.GlobalAveragePooling1D(), L.Dense(1)])
    model.compile("adam", "mse")
    return model


def sparse(model_class=keras.Model):
    inputs = keras.Input((FEATURES,), sparse=True)
    model = model_class(inputs, L.Dense(1, name="head")(inputs))
    model.compile("sgd", "mse")
    return model


def ragged_rows():
    tokens = tf.RaggedTensor.from_row_lengths(np.arange(28) % 9, [1, 2, 3, 4, 5, 6, 7])
    return tf.data.Dataset.from_tensor_slices((tokens, Y[:7])).batch(4)


def rows_padded_to_the_longest_of_their_batch():
    return ragged_rows().map(lambda tokens, y: (tokens.to_tensor(), y))


def sparse_rows():
    return tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(np.maximum(X, 0)), Y)).batch(8)


def no_weights():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).map(lambda x, y: (x, y, None))


def generator():
    for start in (0, 8):
        yield X[start : start + 8], Y[start : start + 8]


class OwnSequence(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return X[8 * index : 8 * index + 8], Y[8 * index : 8 * index + 8]


@pytest.mark.parametrize(
    ("build_fn", "make_data"),
    [
        (mean_of_embeddings, ragged_rows),
        (masked_tokens, rows_padded_to_the_longest_of_their_batch),
        (sparse, sparse_rows),
        pytest.param(dense, no_weights, marks=pytest.mark.campaign),
        pytest.param(dense, generator, marks=pytest.mark.campaign),
        pytest.param(dense, OwnSequence, marks=pytest.mark.campaign),
    ],
)
def test_no_finding(compare, build_fn, make_data):
    result = compare(build_fn, make_data(), steps=5)  # the data end after 2
    assert not result.findings, "\n".join(map(str, result.findings))
    assert result.steps == 2
    assert not result.notes, result.notes  # else it would be compared only roughly


def test_a_fault_on_sparse_rows(compare):
    [found] = compare(lambda: sparse(models.OwnMeanLoss), sparse_rows(), steps=1).findings
    assert (found.name, found.cause) == ("head/kernel", Cause.LOSS_SCALING)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tf.data.Dataset.from_tensor_slices((X[:0], Y[:0])).batch(8), "No step was trained"),
        (tf.data.Dataset.from_tensor_slices((X, Y)), "The parts of a batch have different numbers of rows"),
        (tf.data.Dataset.from_tensor_slices((X, Y)).batch(1, drop_remainder=True), "smaller than the number of rep"),
    ],
    ids=["empty", "not batched", "batches of one row"],
)
def test_data_that_cannot_be(compare, data, message):
    with pytest.raises(ArgumentError, match=message):
        compare(dense, data)


class CountsRows(L.Layer):
    """Counts rows in an integer."""

    def build(self, shape):
        self.rows = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False, name="rows")

    def call(self, inputs):
        self.rows.assign_add(self.count(inputs))
        return inputs

    def count(self, inputs):
        return tf.shape(inputs)[0]


class CountsShape(CountsRows):
    """Counts them as Python knows them, which is those of the replica."""

    def count(self, inputs):
        return inputs.shape[0] or 0


def test_integers_are_compared(compare):
    data = models.batches(rows=8).unbatch().batch(8, drop_remainder=True)
    [found] = compare(lambda: models.network(CountsShape(name="counts")), data, steps=1).findings
    assert (found.what, found.name, found.cause) == ("variable", "sequential/counts/rows", Cause.LAYER_STATE)
    assert "4 instead of 8" in found.evidence


def test_integers_that_are_added_up(compare):
    assert not compare(lambda: models.network(CountsRows(name="counts")), models.batches(rows=8), steps=1).findings


class TwoOfAName(keras.Model):
    """Its variables have the same paths; they are in half precision, which no file of NumPy's knows."""

    def __init__(self):
        super().__init__(dtype="bfloat16")
        self.first, self.second = (L.Dense(5, name="same", dtype="bfloat16") for _ in range(2))
        self.head = L.Dense(1, dtype="bfloat16")

    def call(self, inputs):
        return self.head(self.second(self.first(inputs)))


def test_variables_of_one_name(compare):
    def build():
        model = TwoOfAName()
        model.compile("sgd", "mse")
        assert len({variable.path for variable in model.weights}) < len(model.weights) or not model.built
        return model

    result = compare(build, models.batches(rows=8), steps=1)
    assert not result.findings, "\n".join(map(str, result.findings))


def test_not_a_model(compare):
    with pytest.raises(ArgumentError, match="build_fn returns no model"):
        compare(lambda: keras.Sequential([L.Dense(1)]), models.batches())
