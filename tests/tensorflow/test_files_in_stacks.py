"""The files of Keras and TensorFlow by which the launcher knows, from a task's stacks, where a step hangs."""

import faulthandler
import threading

import keras
import numpy as np
import tensorflow as tf

from tfdist.launching.stacks import find_place


def place_while(run, where, tmp_path):
    """What is told of `run`, which calls `where` somewhere and waits there."""
    dump = tmp_path / "stacks"
    arrived, go_on = threading.Event(), threading.Event()

    def wait():
        arrived.set()
        go_on.wait(60)

    def watch():
        arrived.wait(60)
        with dump.open("w") as file:
            faulthandler.dump_traceback(file)
        go_on.set()

    where.append(wait)
    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    watcher.join()
    assert arrived.is_set()
    # faulthandler names the thread that asks last; the launcher's signal reaches the main thread.
    threads = dump.read_text().split("\n\n")
    main = next(each for each in threads if "in test_" in each)
    return find_place("\n\n".join([*(each for each in threads if each is not main), main]))


def rows(where):
    def generate():
        yield np.ones(3, "float32")
        where[0]()
        yield np.ones(3, "float32")

    return tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((3,), tf.float32)).batch(2)


def test_input_that_python_takes(tmp_path):
    where = []
    assert place_while(lambda: next(iter(rows(where))), where, tmp_path) == "its input pipeline"


def test_input_that_the_graph_takes(tmp_path):
    where = []

    @tf.function
    def take(iterator):
        return next(iterator)

    assert place_while(lambda: take(iter(rows(where))), where, tmp_path) == "its input pipeline"


def test_a_generator_that_keras_reads(tmp_path):
    where = []

    def generate():
        yield np.ones((2, 3), "float32"), np.ones((2, 1), "float32")
        where[0]()
        yield np.ones((2, 3), "float32"), np.ones((2, 1), "float32")

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert (
        place_while(lambda: model.fit(generate(), verbose=0, shuffle=False, steps_per_epoch=2), where, tmp_path)
        == "its input pipeline"
    )


def test_a_function_that_the_step_calls(tmp_path):
    where = []

    def called(value):
        where[0]()
        return value

    @tf.function
    def step(value):
        return tf.numpy_function(called, [value], tf.float32)

    place = place_while(lambda: step(tf.constant(1.0)), where, tmp_path)
    assert place.endswith(", which the step or its input pipeline calls")
    assert "test_files_in_stacks.py" in place
