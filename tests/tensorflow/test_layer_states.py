"""What a layer's update of an integer variable depends on, seen in the graph of the step."""

import keras
import pytest
import tensorflow as tf

from tfdist.errors import UnsupportedError
from tfdist.keras_compat.layer_states import LayerStates


def verdict(update):
    """Whether `update(state, rows)` is taken for a sum over rows; or the message of the refusal."""
    variable = keras.Variable(0, dtype="int64", name="count")
    found = []

    @tf.function
    def step(x):
        states = LayerStates({"x": x}, tf.constant(3))
        value = tf.convert_to_tensor(variable.value)
        states.remember_read(variable, value, is_partial=False)
        try:
            found.append(states.is_sum_over_rows(variable, update(value, x)))
        except UnsupportedError as error:
            found.append(str(error))

    step(tf.ones((3, 2), tf.int64))
    return found[0]


@pytest.mark.parametrize(
    "update",
    [
        lambda state, _: state + 1,
        lambda state, _: tf.maximum(state, 7) * 2,
        lambda state, _: tf.cond(state > 3, lambda: state + 1, lambda: state),
    ],
    ids=["step_count", "arithmetic", "branch"],
)
def test_what_does_not_depend_on_the_rows(update):
    assert verdict(update) is False


@pytest.mark.parametrize(
    "update",
    [
        lambda state, x: state + tf.reduce_sum(x),
        lambda state, x: tf.reduce_sum(x) + state,
        lambda state, x: state - tf.shape(x, out_type=tf.int64)[0] + tf.reduce_sum(x),
        lambda state, x: tf.identity(state) + tf.cond(tf.reduce_any(x > 1), lambda: tf.reduce_sum(x), lambda: x[0, 0]),
    ],
    ids=["added", "other_order", "subtracted", "branch"],
)
def test_sums_over_rows(update):
    assert verdict(update) is True


@pytest.mark.parametrize(
    "update",
    [
        lambda _, x: tf.reduce_max(x),
        lambda state, x: tf.maximum(state, x[0, 0]),
        lambda state, x: 2 * state + tf.reduce_sum(x),
        lambda state, x: state + state * tf.reduce_sum(x),
        lambda state, x: tf.cond(x[0, 0] > 0, lambda: state + 1, lambda: state),
        lambda state, _: state + tf.cast(tf.random.uniform(()) > 0.5, tf.int64) * state,
        lambda state, x: tf.while_loop(lambda s, _: s < 9, lambda s, v: (s + v[0, 0], v), (state, x))[0],
    ],
    ids=["last", "maximum", "scaled", "product", "branch", "random", "loop"],
)
def test_what_cannot_be_put_together(update):
    message = verdict(update)
    assert "no value over several replicas" in str(message)
    assert "count.assign_add" in message
