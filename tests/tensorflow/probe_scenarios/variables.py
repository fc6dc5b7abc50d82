"""Probes: variables."""

import keras
import numpy as np
import tensorflow as tf

from probe_scenarios.registry import close, model_of, probe, rows


class ShiftedMean(keras.layers.Layer):
    """Keeps the mean of its inputs, as a layer with state does."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(), initializer="zeros", trainable=False, name="mean")

    def call(self, x):
        self.mean.assign(keras.ops.mean(x))
        return x


@probe(
    "CollectiveAllReduceExtended._get_variable_creator_initial_value",
    on="multi",
    stock=False,
    fails_with="InvalidArgumentError: Value for attr 'T' of (bfloat16|uint8|int8)",
)
def dtypes_that_are_not_broadcast(strategy):
    own = 1 + strategy.cluster_resolver.task_id
    with strategy.scope():
        for dtype in ("bfloat16", "uint8", "int8", "uint16", "int16", "uint32", "uint64"):
            made = [
                tf.Variable(tf.cast([own, 7], dtype)),
                tf.Variable(lambda d=dtype: tf.cast([own, 7], d), dtype=dtype),
                keras.Variable(lambda shape, dtype: tf.cast([own, 7], dtype), shape=(2,), dtype=dtype),
            ]
            for variable in made:
                value = strategy.experimental_local_results(
                    variable.value if isinstance(variable, keras.Variable) else variable
                )[0]
                assert value.dtype == dtype, (value.dtype, dtype)
                assert tf.cast(value, "float32").numpy().tolist() == [1, 7], f"{dtype}: not the chief's {value}"


@probe("Variable._direct_assign", on="multi", stock=False, fails_with="")
def assign_in_call(strategy):
    model = model_of(strategy, lambda: ShiftedMean(name="shifted"), lambda: keras.layers.Dense(1))
    x, y = rows()
    model.fit(x, y, batch_size=8, verbose=0)
    close(model.get_layer("shifted").mean.numpy(), x.mean())


class Counter(keras.layers.Layer):
    """Counts by many small steps, so that two workers at once are sure to meet."""

    def __init__(self, method, step):
        super().__init__()
        self.method, self.step = method, step

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x):
        for _ in range(50):
            getattr(self.count, self.method)(self.step)
        return x


def _count(strategy, method):
    model = model_of(strategy, lambda: Counter(method, 1.0), lambda: keras.layers.Dense(1))
    x, y = rows(32)
    model.fit(x, y, batch_size=1, verbose=0)
    assert abs(float(model.layers[0].count.numpy())) == 50 * 32


@probe("Variable.assign_add", on="ps", stock=False, fails_with="AssertionError")
def concurrent_additions(strategy):
    _count(strategy, "assign_add")


@probe("Variable.assign_sub", on="ps", stock=False, fails_with="AssertionError")
def concurrent_subtractions(strategy):
    _count(strategy, "assign_sub")


def partitioned_model(strategy, optimizer=None):
    """Its embedding table lies on two parameter servers."""
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((3,), dtype="int64"),
                keras.layers.Embedding(10, 2),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer() if optimizer else keras.optimizers.SGD(0.1), "mse")
    tokens = np.arange(24).reshape(8, 3) % 10
    return model, tokens, tokens.sum(axis=1, keepdims=True).astype("float32")


@probe("backend.tensorflow.numpy.take", on="ps", stock=False, fails_with="AssertionError: the whole table")
def look_up_in_a_partitioned_table(strategy):
    model, tokens, _ = partitioned_model(strategy)
    table = model.layers[0].embeddings

    @tf.function
    def look_up(indices):
        return keras.ops.take(table, indices, axis=0)

    operations = look_up.get_concrete_function(tf.constant(tokens)).graph.get_operations()
    assert not any(op.type == "ReadVariableOp" for op in operations), "the whole table is read"


def _train_partitioned(strategy, optimizer=None):
    model, tokens, y = partitioned_model(strategy, optimizer)
    before = model.get_weights()[0]
    model.fit(tokens, y, batch_size=4, verbose=0)
    assert (model.get_weights()[0] != before).any()


@probe("GradientTape.gradient", on="ps", stock=False, fails_with="")
def gradient_of_a_partitioned_variable(strategy):
    _train_partitioned(strategy)


@probe("TFOptimizer._var_key", on="ps", stock=False, fails_with="")
def key_of_a_partitioned_variable(strategy):
    _train_partitioned(strategy, lambda: keras.optimizers.Adam(0.1))


@probe("TFOptimizer.add_variable_from_reference", on="ps", stock=False, fails_with="")
def slot_of_a_partitioned_variable(strategy):
    _train_partitioned(strategy, lambda: keras.optimizers.SGD(0.1, momentum=0.9))


@probe("Variable.value", on="ps", stock=False, fails_with="")
def update_of_one_shard(strategy):
    _train_partitioned(strategy, lambda: keras.optimizers.Adam(0.1))


@probe("Variable.__int__", on="mirrored", stock=False, fails_with="TypeError")
def number_of_steps(strategy):
    assert int(model_of(strategy).optimizer.iterations) == 0


@probe("Variable.__float__", on="mirrored", stock=False, fails_with="TypeError")
def learning_rate(strategy):
    close(float(model_of(strategy).optimizer.learning_rate), 0.1)
