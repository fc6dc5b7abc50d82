"""TensorFlow takes results without a copy, and the pool sees that it has them."""

import numpy as np

from tfdist.communication.transports.buffers import ResultPool, layout_of


def test_memory_that_tensorflow_keeps_is_not_used_again():
    import tensorflow as tf

    pool = ResultPool()
    like = layout_of([np.zeros(1000, np.float32), np.zeros((3, 5), np.float32)])
    addresses = []

    def hand_out():
        results = pool.arrays_like(like)
        addresses.append(results[0].ctypes.data)
        for number, result in enumerate(results):
            result[...] = len(addresses) * 10 + number
        return results

    @tf.function
    def run():
        return tf.numpy_function(hand_out, [], [tf.float32, tf.float32])

    first = run()
    assert np.frombuffer(first[0], np.float32).ctypes.data == addresses[0]  # not a copy
    second = run()
    assert addresses[1] != addresses[0]
    np.testing.assert_array_equal(first[0], np.full(1000, 10))
    np.testing.assert_array_equal(first[1], np.full((3, 5), 11))
    np.testing.assert_array_equal(second[0], np.full(1000, 20))
    del first
    for _ in range(5):  # TensorFlow gives memory back at a later call
        second = run()
    assert len(set(addresses)) < len(addresses)
