"""Layers with state, randomness, sparse gradients, losses of their own."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from table import case

from cases.building import BATCH, RowCount, build, classification, dataset, fixed_weights, outcome, regression

L = keras.layers


@case(wide=True)
def batch_normalization(strategy):
    """Each replica normalises by its own rows, as in every data-parallel framework, so weights are not one device's.

    That all workers end with the same moving statistics is checked for every case.
    """
    x, y = regression()
    model = build(strategy, lambda: L.Dense(3), L.BatchNormalization, lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=3, verbose=0), x, y, prefix="shape")


@case(loss_falls=False)
def batch_normalization_where_a_replica_gets_no_row(strategy):
    x, y = regression(9)
    model = build(strategy, lambda: L.Dense(3), L.BatchNormalization, lambda: L.Dense(1))
    history = model.fit(dataset(x, y), epochs=3, verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())
    assert np.isfinite(history.history["loss"]).all()
    assert np.isfinite(model.predict(x, verbose=0)).all()
    return outcome(model, history, prefix="shape")


@case()
def batch_normalization_that_only_infers(strategy):
    x, y = regression()
    model = build(strategy, lambda: L.Dense(3), L.BatchNormalization, lambda: L.Dense(1))
    model.layers[1].trainable = False
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.02), "mse")
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case(not_applicable={"ps": "asynchronous workers have no common batch"}, floatx="float64", tolerance=1e-12)
def batch_normalization_synchronized(strategy):
    """Batches that divide by the replicas: the statistics are those of the global batch."""
    x, y = regression(24)
    model = build(strategy, lambda: L.Dense(3), lambda: L.BatchNormalization(synchronized=True), lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0))


@case(not_applicable={"ps": "asynchronous workers have no common batch"}, floatx="float64", tolerance=1e-12, wide=True)
def batch_normalization_synchronized_where_replicas_get_no_row(strategy):
    """With three replicas two of them have a stand-in row in the last batch."""
    x, y = regression(17)
    model = build(strategy, lambda: L.Dense(3), lambda: L.BatchNormalization(synchronized=True), lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0))


@case(wide=True)
def dropout(strategy):
    x, y = regression(64)
    model = build(strategy, lambda: L.Dense(8), lambda: L.Dropout(0.3, seed=1), lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=6, verbose=0), x, y, prefix="shape")


@case(floatx="float64", tolerance=1e-12)
def layer_normalization(strategy):
    x, y = regression()
    model = build(strategy, lambda: L.Dense(5), L.LayerNormalization, lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


def _tokens(rows=21):
    rng = np.random.default_rng(4)
    tokens = rng.integers(0, 10, size=(rows, 6))
    return tokens, (tokens.mean(axis=1, keepdims=True) / 10).astype(keras.config.floatx())


def _embedding_model(strategy, optimizer, **keywords):
    return build(
        strategy,
        lambda: L.Embedding(10, 3, **keywords),
        L.GlobalAveragePooling1D,
        lambda: L.Dense(1),
        shape=(6,),
        dtype="int64",
        optimizer=optimizer,
    )


@case(wide=True)
def embedding(strategy):
    tokens, y = _tokens()
    model = _embedding_model(strategy, lambda: keras.optimizers.SGD(0.5))
    return outcome(model, model.fit(dataset(tokens, y), epochs=3, verbose=0), tokens, y)


@case(floatx="float64", tolerance=1e-12, loss_falls=False)
def embedding_with_adam_and_clipping(strategy):
    tokens, y = _tokens()
    model = _embedding_model(strategy, lambda: keras.optimizers.Adam(0.02, global_clipnorm=0.1))
    return outcome(model, model.fit(dataset(tokens, y), epochs=3, verbose=0), tokens, y)


@case()
def embedding_where_a_replica_gets_no_row(strategy):
    tokens, y = _tokens(17)
    model = _embedding_model(strategy, lambda: keras.optimizers.SGD(0.5))
    return outcome(model, model.fit(dataset(tokens, y), epochs=3, verbose=0), tokens, y)


@case(floatx="float64", tolerance=1e-12)
def lstm_with_a_mask(strategy):
    """Masked steps do not count in the loss of a sequence."""
    tokens, _ = _tokens()
    tokens[:, 3:] *= np.arange(21)[:, None] % 2  # rows with an even number end after three tokens
    targets = (tokens[:, :, None] / 10).astype("float64")
    model = build(
        strategy,
        lambda: L.Embedding(10, 3, mask_zero=True),
        lambda: L.LSTM(4),
        lambda: L.Dense(1),
        shape=(6,),
        dtype="int64",
    )
    return outcome(
        model, model.fit(dataset(tokens, targets.mean(axis=1)), epochs=2, verbose=0), tokens, targets.mean(axis=1)
    )


@case(floatx="float64", tolerance=1e-12)
def gru_bidirectional(strategy):
    x, y = regression()
    x = x[:, :, None]
    model = build(strategy, lambda: L.Bidirectional(L.GRU(3)), lambda: L.Dense(1), shape=(4, 1))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def convolution(strategy):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(21, 6, 6, 1)).astype("float32")
    y = x.mean(axis=(1, 2))
    model = build(
        strategy,
        lambda: L.Conv2D(2, 3, activation="relu"),
        L.MaxPooling2D,
        L.Flatten,
        lambda: L.Dense(1),
        shape=(6, 6, 1),
    )
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def attention(strategy):
    x, y = regression()
    x = x.reshape(-1, 2, 2)
    with strategy.scope():
        inputs = keras.Input((2, 2))
        hidden = L.MultiHeadAttention(2, 2)(inputs, inputs)
        model = keras.Model(inputs, L.Dense(1)(L.Flatten()(hidden)))
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=[RowCount()])
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case(wide=True)
def regularizers(strategy):
    x, y = regression(17)
    model = build(
        strategy,
        lambda: L.Dense(3, kernel_regularizer=keras.regularizers.L1L2(0.01, 0.02), bias_regularizer="l2"),
        lambda: L.Dense(1),
    )
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


class AddsMeanLoss(L.Layer):
    """Adds a loss that is a mean over the rows."""

    def call(self, x):
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(x)))
        return x


@case()
def add_loss(strategy):
    x, y = regression(24)
    model = build(strategy, lambda: L.Dense(3), AddsMeanLoss, lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def add_loss_with_uneven_batches(strategy):
    x, y = regression(21)
    model = build(strategy, lambda: L.Dense(3), AddsMeanLoss, lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def activity_regularizer(strategy):
    x, y = regression()
    model = build(strategy, lambda: L.Dense(3, activity_regularizer="l2"), lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def constraints(strategy):
    x, y = regression()
    model = build(
        strategy,
        lambda: L.Dense(3, kernel_constraint=keras.constraints.MaxNorm(0.7)),
        lambda: L.Dense(1, kernel_constraint="non_neg"),
    )
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def normalization_that_was_adapted(strategy):
    x, y = regression()
    with strategy.scope():
        layer = L.Normalization()
        layer.adapt(x * 3 + 1)
        model = keras.Sequential([L.Input((4,)), layer, L.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history) | {"always/mean": np.asarray(layer.mean)}


@case()
def several_losses(strategy):
    x, labels = classification(21)
    targets = keras.utils.to_categorical(labels, 3).astype("float32")
    found = {}
    for loss in (
        "categorical_crossentropy",
        "kl_divergence",
        "huber",
        "cosine_similarity",
        keras.losses.MeanSquaredError(reduction="sum"),
        keras.losses.CategoricalFocalCrossentropy(),
        keras.losses.MeanSquaredError(reduction="mean"),
    ):
        model = build(strategy, lambda: L.Dense(3, activation="softmax"), loss=loss)
        history = model.fit(dataset(x, targets), epochs=1, verbose=0)
        name = loss if isinstance(loss, str) else f"{loss.name}_{loss.reduction}"
        found |= {key.replace("/", f"/{name}/", 1): v for key, v in outcome(model, history, x, targets).items()}
    return found


@case(seed=11, not_applicable={"ps": "each step draws on its own worker"})
def random_layers_agree_between_workers(strategy):
    """Augmentation draws on each replica; the workers still end with equal weights."""
    x, y = regression()
    model = build(strategy, lambda: L.GaussianNoise(0.1, seed=3), lambda: L.Dense(1))
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), prefix="shape")


@case()
def text_vectorization_in_the_dataset(strategy):
    words = np.array(["a b", "b c", "c c", "a a"] * 4)
    y = np.arange(16, dtype="float32")[:, None] / 16
    layer = L.TextVectorization(vocabulary=["a", "b", "c"], output_sequence_length=2)
    data = tf.data.Dataset.from_tensor_slices((words, y)).batch(BATCH).map(lambda text, target: (layer(text), target))
    model = build(strategy, lambda: L.Embedding(5, 2), L.Flatten, lambda: L.Dense(1), shape=(2,), dtype="int64")
    return outcome(model, model.fit(data, epochs=2, verbose=0))
