"""What fit, evaluate and predict read."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from table import case

from cases.building import (
    BATCH,
    RowCount,
    RowSum,
    as_arrays,
    classification,
    compiled,
    dataset,
    fixed_weights,
    outcome,
    regression,
    without_steps,
)


@case(wide=True)
def dataset_with_a_last_batch_shorter_than_the_replicas(strategy):
    x, y = regression(17)
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case(wide=True)
def dataset_of_uneven_batches(strategy):
    x, y = regression(20)
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y, batch=5), epochs=2, verbose=0), x, y, evaluate={"batch_size": 5})


@case()
def dataset_of_batches_of_known_size(strategy):
    x, y = regression(18)
    model = compiled(strategy)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(3, drop_remainder=True)
    return outcome(model, model.fit(data, epochs=2, verbose=0), x, y, evaluate={"batch_size": 3})


@case()
def endless_dataset(strategy):
    x, y = regression()
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y).repeat(), epochs=3, steps_per_epoch=4, verbose=0), x, y)


@case()
def finite_dataset_over_several_epochs(strategy):
    x, y = regression(48)
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y), epochs=3, steps_per_epoch=2, verbose=0), x, y)


@case(loss_falls=False)
def dataset_that_ends_before_steps_per_epoch(strategy):
    """Keras warns and ends training."""
    x, y = regression(32)
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y), epochs=1, steps_per_epoch=9, verbose=0), x, y)


@case()
def dataset_from_generator(strategy):
    x, y = regression()

    def batches():
        for start in range(0, len(x), BATCH):
            yield x[start : start + BATCH], y[start : start + BATCH]

    signature = (tf.TensorSpec((None, 4), x.dtype), tf.TensorSpec((None, 1), y.dtype))
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    assert int(data.cardinality()) == tf.data.UNKNOWN_CARDINALITY
    model = compiled(strategy)
    return without_steps(outcome(model, model.fit(data, epochs=2, verbose=0), x, y))


@case()
def filtered_dataset(strategy):
    x, y = regression(40)
    data = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda row, _: row[0] > 0).batch(BATCH)
    assert int(data.cardinality()) == tf.data.UNKNOWN_CARDINALITY
    model = compiled(strategy)
    return without_steps(outcome(model, model.fit(data, epochs=2, verbose=0), x, y))


@case()
def python_generator(strategy):
    x, y = regression(24)

    def batches():
        while True:
            for start in range(0, len(x), BATCH):
                yield x[start : start + BATCH], y[start : start + BATCH]

    model = compiled(strategy)
    return outcome(model, model.fit(batches(), epochs=2, steps_per_epoch=3, verbose=0), x, y)


class Rows(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return (len(self.x) + BATCH - 1) // BATCH

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[rows], self.y[rows]


@case()
def py_dataset(strategy):
    x, y = regression()
    model = compiled(strategy)
    return outcome(model, model.fit(Rows(x, y), epochs=2, shuffle=False, verbose=0), x, y)


@case(wide=True)
def arrays_in_order(strategy):
    x, y = regression()
    model = compiled(strategy)
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, x, y)


@case()
def tensors_in_order(strategy):
    x, y = regression()
    model = compiled(strategy)
    history = model.fit(tf.constant(x), tf.constant(y), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, x, y)


def _row_numbers(rows):
    """Inputs of any size, and targets that are the row's number, small enough for sums of squares to be exact."""
    x, _ = regression(rows)
    return x, np.arange(rows, dtype=x.dtype)[:, None]


def _counting_model(strategy):
    return compiled(
        strategy,
        lambda: keras.optimizers.SGD(1e-4),
        metrics=[RowSum, lambda: RowSum("row_sum_of_squares", power=2)],
    )


@case(seed=None, wide=True)
def shuffled_arrays_without_a_seed(strategy):
    x, y = _row_numbers(22)
    model = _counting_model(strategy)
    history = model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0)
    return outcome(model, history, x, y, prefix="shape")


@case(seed=None)
def shuffled_py_dataset_without_a_seed(strategy):
    x, y = _row_numbers(22)
    model = _counting_model(strategy)
    return outcome(model, model.fit(Rows(x, y), epochs=3, verbose=0), x, y, prefix="shape")


@case(wide=True)
def shuffled_arrays_with_a_seed(strategy):
    x, y = _row_numbers(22)
    model = _counting_model(strategy)
    return outcome(model, model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0), x, y)


@case(seed=None)
def shuffled_dataset_without_a_seed(strategy):
    x, y = _row_numbers(22)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(22).batch(BATCH)
    model = _counting_model(strategy)
    return outcome(model, model.fit(data, epochs=3, verbose=0), x, y, prefix="shape")


@case()
def shuffled_dataset_with_a_seed(strategy):
    x, y = _row_numbers(22)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(22, seed=5).batch(BATCH)
    model = _counting_model(strategy)
    return outcome(model, model.fit(data, epochs=3, verbose=0), x, y)


class OrderSeen(keras.callbacks.Callback):
    """The sum of targets after each batch tells the order of rows."""

    def __init__(self):
        super().__init__()
        self.sums = []

    def on_train_batch_end(self, batch, logs=None):
        self.sums.append(float(logs["row_sum"]))


@case(seed=None, not_applicable={"ps": "steps end in another order than they began"})
def each_epoch_has_another_order(strategy):
    x, y = _row_numbers(64)
    model = _counting_model(strategy)
    seen = OrderSeen()
    model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0, callbacks=[seen])
    orders = {tuple(seen.sums[i : i + 8]) for i in (0, 8, 16)}
    return {"always/number_of_orders": len(orders)}


@case()
def nested_inputs(strategy):
    x, y = regression()
    inputs = {"pair": (x[:, :2], x[:, 2:3]), "single": x[:, 3:]}
    with strategy.scope():
        a, b, c = (keras.Input((n,)) for n in (2, 1, 1))
        out = keras.layers.Dense(1)(keras.layers.Concatenate()([a, b, c]))
        model = keras.Model({"pair": (a, b), "single": c}, out)
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[RowCount()])
    history = model.fit(inputs, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, inputs, y)


class TakesOptional(keras.Model):
    """A model with an input that may be left out."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, inputs):
        out = self.dense(inputs["x"])
        return out if inputs.get("extra") is None else out + inputs["extra"]


@case()
def none_as_part_of_the_inputs(strategy):
    x, y = regression()
    inputs = {"x": x, "extra": None}
    with strategy.scope():
        model = TakesOptional()
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[RowCount()])
    history = model.fit(inputs, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, inputs, y)


def _token_model(strategy, **input_arguments):
    with strategy.scope():
        inputs = keras.Input(**input_arguments)
        outputs = keras.layers.Dense(1)(inputs)
        model = keras.Model(inputs, outputs)
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[RowCount()])
    return model


@case()
def sparse_inputs(strategy):
    x, y = regression()
    x = np.where(x > 0, x, 0).astype(x.dtype)
    sparse = tf.sparse.from_dense(x)
    data = tf.data.Dataset.from_tensor_slices((sparse, y)).batch(BATCH)
    model = _token_model(strategy, shape=(4,), sparse=True)
    found = outcome(model, model.fit(data, epochs=2, verbose=0))
    fixed_weights(model)
    return found | as_arrays("always/predict", model.predict(data.map(lambda row, _: row), verbose=0))


class SumOfTokens(keras.Model):
    """Takes rows of different lengths, of which some are empty."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, rows):
        if isinstance(rows, tf.RaggedTensor):
            lengths = tf.cast(rows.row_lengths(), rows.dtype)
        else:  # as Keras builds the model
            lengths = keras.ops.sum(keras.ops.ones_like(rows), axis=1)
        total = tf.reduce_sum(rows, axis=1) if isinstance(rows, tf.RaggedTensor) else keras.ops.sum(rows, axis=1)
        return self.dense(keras.ops.stack([total, lengths], axis=1))


@case()
def ragged_inputs(strategy):
    rng = np.random.default_rng(5)
    rows = [rng.normal(size=length).astype("float32") for length in rng.integers(0, 5, size=21)]
    y = np.array([[2 * row.sum() - len(row)] for row in rows], "float32")
    with strategy.scope():
        model = SumOfTokens()
        model.compile(keras.optimizers.SGD(0.02), "mse", metrics=[RowCount()])
    data = tf.data.Dataset.from_tensor_slices((tf.ragged.constant(rows, dtype=tf.float32), y)).batch(BATCH)
    found = outcome(model, model.fit(data, epochs=2, verbose=0))
    model.set_weights([np.array([[0.5], [-2.0]]), np.array([1.0])])
    return found | as_arrays("always/predict", model.predict(data.map(lambda row, _: row), verbose=0))


@case()
def sample_weight(strategy):
    x, y = regression()
    weight = np.linspace(0.0, 2.0, len(x)).astype(x.dtype)
    model = compiled(strategy, weighted_metrics=["mse"])
    history = model.fit(x, y, sample_weight=weight, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, x, y, evaluate={"sample_weight": weight})


@case()
def sample_weight_in_a_dataset(strategy):
    x, y = regression()
    weight = np.linspace(0.0, 2.0, len(x)).astype(x.dtype)
    model = compiled(strategy, weighted_metrics=["mse"])
    return outcome(model, model.fit(dataset(x, y, weight), epochs=2, verbose=0), x, y)


@case()
def class_weight(strategy):
    x, labels = classification()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, activation="softmax")])
        fixed_weights(model)
        model.compile(
            keras.optimizers.SGD(0.1),
            "sparse_categorical_crossentropy",
            weighted_metrics=["sparse_categorical_accuracy"],
        )
    weights = {0: 1.0, 1: 0.5, 2: 3.0}
    history = model.fit(x, labels, class_weight=weights, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
    return outcome(model, history, x, labels)


@case()
def validation_arrays(strategy):
    x, y = regression(40)
    model = compiled(strategy)
    history = model.fit(
        x[:21], y[:21], validation_data=(x[21:], y[21:]), batch_size=BATCH, epochs=2, shuffle=False, verbose=0
    )
    return outcome(model, history, x, y)


@case()
def validation_arrays_with_weights(strategy):
    x, y = regression(40)
    weight = np.linspace(0.0, 2.0, 19).astype(x.dtype)
    model = compiled(strategy, weighted_metrics=["mse"])
    history = model.fit(
        dataset(x[:21], y[:21]), validation_data=(x[21:], y[21:], weight), epochs=2, validation_batch_size=6, verbose=0
    )
    return outcome(model, history, x, y)


@case()
def validation_dataset(strategy):
    x, y = regression(40)
    model = compiled(strategy)
    history = model.fit(dataset(x[:21], y[:21]), validation_data=dataset(x[21:], y[21:], batch=6), epochs=2, verbose=0)
    return outcome(model, history, x, y)


@case()
def validation_steps(strategy):
    x, y = regression(40)
    model = compiled(strategy)
    history = model.fit(
        dataset(x[:21], y[:21]),
        validation_data=dataset(x[21:], y[21:], batch=6).repeat(),
        validation_steps=2,
        epochs=2,
        verbose=0,
    )
    return outcome(model, history, x, y)


@case()
def validation_split(strategy):
    x, y = regression(30)
    model = compiled(strategy)
    history = model.fit(x, y, validation_split=0.3, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, x, y)


@case()
def validation_freq(strategy):
    x, y = regression(30)
    model = compiled(strategy)
    history = model.fit(
        x, y, validation_split=0.3, validation_freq=2, batch_size=BATCH, epochs=4, shuffle=False, verbose=0
    )
    assert len(history.history["val_loss"]) == 2
    return outcome(model, history, x, y)


@case(wide=True)
def evaluate_and_predict_datasets(strategy):
    x, y = regression(19)
    model = compiled(strategy)
    found = {}
    for batch in (4, 7, 19):
        values = model.evaluate(dataset(x, y, batch=batch), return_dict=True, verbose=0)
        found |= {f"always/evaluate/{batch}/{name}": value for name, value in values.items()}
        found |= as_arrays(f"always/predict/{batch}", model.predict(dataset(x, batch=batch), verbose=0))
    values = model.evaluate(dataset(x, y, batch=4).repeat(), steps=3, return_dict=True, verbose=0)
    found |= {f"always/evaluate/steps/{name}": value for name, value in values.items()}
    return found | as_arrays("always/predict/steps", model.predict(dataset(x, batch=4).repeat(), steps=3, verbose=0))
