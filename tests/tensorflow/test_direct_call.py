"""A traced step that is called without being looked up, and the traces of `fit`."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdist
from tfdist.keras_compat.direct_call import DirectCall


def numbers(start, stop):
    return iter(tf.data.Dataset.range(start, stop))


def read(iterator):
    return next(iterator)


def test_each_iterator_gives_its_own_elements():
    call = DirectCall(read)
    first, second = numbers(0, 10), numbers(100, 110)
    read_in_turns = [int(call(iterator)) for iterator in (first, first, second, second, first, first, second)]
    assert read_in_turns == [0, 1, 100, 101, 2, 3, 102]
    assert call._function.experimental_get_tracing_count() == 1


class CountingFunction:
    """A `tf.function` that counts its calls, which look traces up."""

    def __init__(self, function):
        self.function = function
        self.get_concrete_function = function.get_concrete_function
        self.num_calls = 0

    def __call__(self, iterator):
        self.num_calls += 1
        return self.function(iterator)


def test_it_is_looked_up_once_an_iterator():
    call = DirectCall(read)
    call._function = counting = CountingFunction(call._function)
    iterator = numbers(0, 10)
    assert [int(call(iterator)) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert counting.num_calls == 1
    call.release()
    assert int(call(iterator)) == 5
    assert counting.num_calls == 2


def test_an_iterator_of_other_shapes_is_traced_anew():
    call = DirectCall(read)
    assert call(numbers(0, 2)).shape == ()
    batches = iter(tf.data.Dataset.range(6).batch(3))
    assert [call(batches).numpy().tolist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]


def test_variables_of_the_first_call_and_changed_variables():
    made = []
    changed = tf.Variable(1, dtype=tf.int64)

    def step(iterator):
        if not made:
            made.append(tf.Variable(0, dtype=tf.int64))
        return made[0].assign_add(next(iterator) * changed)

    call = DirectCall(step)
    iterator = numbers(1, 10)
    assert [int(call(iterator)) for _ in range(2)] == [1, 3]
    changed.assign(10)
    assert int(call(iterator)) == 33
    assert int(made[0]) == 33


def test_the_end_of_the_data_is_raised():
    call = DirectCall(read)
    iterator = numbers(0, 2)
    call(iterator)
    call(iterator)
    for _ in range(2):
        with pytest.raises(tf.errors.OutOfRangeError):
            call(iterator)


def test_functions_may_be_run_eagerly_between_steps():
    were_eager = []

    def step(iterator):
        were_eager.append(tf.executing_eagerly())
        return next(iterator)

    call = DirectCall(step)
    iterator = numbers(0, 10)
    values = [int(call(iterator)) for _ in range(2)]
    tf.config.run_functions_eagerly(True)
    try:
        values += [int(call(iterator)) for _ in range(2)]
    finally:
        tf.config.run_functions_eagerly(False)
    values.append(int(call(iterator)))
    assert values == [0, 1, 2, 3, 4]
    assert were_eager[-2:] == [True, True]
    assert not any(were_eager[:-2])


def test_released_iterators_are_freed():
    call = DirectCall(read)
    iterator = numbers(0, 10)
    for _ in range(2):
        call(iterator)
    gone = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert gone() is not None
    call.release()
    gc.collect()
    assert gone() is None


@pytest.fixture
def traces(monkeypatch):
    """The number of times that the model's `train_step` and `test_step` have been traced."""
    counts = {"train": 0, "test": 0}
    for kind in counts:
        original = getattr(keras.Model, f"{kind}_step")

        def counted(self, *args, kind=kind, original=original):
            counts[kind] += 1
            return original(self, *args)

        monkeypatch.setattr(keras.Model, f"{kind}_step", counted)
    return counts


def test_fit_traces_once_and_keeps_no_iterator(traces):
    x, y = np.ones((22, 3), np.float32), np.ones((22, 1), np.float32)
    strategy = tfdist.mirrored_strategy(["CPU:0"])
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile("adam", "mse", steps_per_execution=2)
    model.fit(x, y, batch_size=4, epochs=1, validation_data=(x, y), verbose=0)
    after_first = dict(traces)
    model.fit(x, y, batch_size=4, epochs=2, validation_data=(x, y), verbose=0)
    model.fit(x[:13], y[:13], batch_size=4, epochs=2, verbose=0)
    assert traces == after_first
    assert model.train_function._traced_steps._iterator is None
    assert int(model.optimizer.iterations) == 6 + 2 * 6 + 2 * 4


def test_weights_that_are_frozen_and_compiled_anew_do_not_train(traces):
    x, y = np.ones((8, 3), np.float32), np.zeros((8, 1), np.float32)
    strategy = tfdist.mirrored_strategy(["CPU:0"])
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    model.layers[0].trainable = False
    with strategy.scope():
        model.compile("sgd", "mse")
    before = [layer.kernel.numpy() for layer in model.layers]
    num_traces = traces["train"]
    model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    assert traces["train"] > num_traces
    np.testing.assert_array_equal(model.layers[0].kernel.numpy(), before[0])
    assert (model.layers[1].kernel.numpy() != before[1]).any()
