"""Sums of tensors over a transport, from within graphs. The members are two threads of this process."""

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from tfdist.balancing import COLUMNS
from tfdist.communication.transport_exchange import TransportExchange
from tfdist.communication.transports import TimeLimit, form_group, listen
from tfdist.errors import ArgumentError

SHAPES = [(200, 100), (7,), (), (3, 5), (0, 4), (300, 100), (2, 1, 2)]  # the first and the last but one are not small
LIMIT = TimeLimit(30, "test limit")


@contextlib.contextmanager
def two_members(shares_memory=True):
    """Yields what calls a function of an exchange and its rank on two members at once, and returns both results."""
    listeners = [listen("127.0.0.1") for _ in range(2)]
    addresses = [f"127.0.0.1:{listener.port}" for listener in listeners]

    def member(rank):
        return form_group(
            listeners[rank],
            addresses,
            rank,
            secret=b"secret",
            names=["one", "two"],
            group="test",
            forming_limit=LIMIT,
            exchange_limit=LIMIT,
            shares_memory=shares_memory,
        )

    with ThreadPoolExecutor(2) as threads:
        exchanges = [TransportExchange(transport) for transport in threads.map(member, range(2))]
        yield lambda function: list(threads.map(function, exchanges, range(2)))
        for exchange in exchanges:
            exchange.transport.close()


@pytest.fixture
def on_both():
    with two_members() as on_both:
        yield on_both


def values(rank, dtypes=(np.float32,)):
    rng = np.random.default_rng(rank)
    return [(rng.normal(size=shape) * 100).astype(dtype) for dtype in dtypes for shape in SHAPES]


@pytest.mark.parametrize("dtypes", [[np.float32], [np.float16, np.float64, np.int32]])
def test_graphs_sum_as_eager_code_and_numpy_do(on_both, dtypes):
    def run(exchange, rank):
        tensors = [tf.constant(value) for value in values(rank, dtypes)]
        return exchange.sum(tensors), tf.function(exchange.sum)(tensors)

    expected = [
        (a.astype(np.float32) + b).astype(a.dtype) if a.dtype == np.float16 else a + b
        for a, b in zip(values(0, dtypes), values(1, dtypes), strict=True)
    ]
    for eagerly, in_graph in on_both(run):
        for one, other, numpys in zip(eagerly, in_graph, expected, strict=True):
            assert one.shape == other.shape == numpys.shape
            np.testing.assert_array_equal(one, numpys)
            np.testing.assert_array_equal(other, numpys)


def record_exchanges(exchange):
    """Returns a list to which every later sum adds the shapes of its arrays."""
    original, recorded = exchange.transport.all_reduce_sum, []

    def recording(parts, **options):
        recorded.append([part.shape for part in parts])
        return original(parts, **options)

    exchange.transport.all_reduce_sum = recording
    return recorded


def test_small_tensors_of_a_graph_are_one_array(on_both):
    def run(exchange, rank):
        recorded = record_exchanges(exchange)
        tf.function(exchange.sum)([tf.constant(value) for value in values(rank)])
        return recorded

    assert on_both(run) == [[[(27,), (200, 100), (300, 100)]]] * 2


LARGE_SHAPES = [(100,), (1300, 1000), (800, 1000), (10,), (30,), (600, 1000), (1600, 1000), (5,)]


def test_a_network_is_used_while_gradients_are_worked_out():
    def run(exchange, rank):
        recorded = record_exchanges(exchange)
        tensors = [tf.fill(shape, 1.0 + rank) for shape in LARGE_SHAPES]
        summed = tf.function(exchange.sum)
        for total, shape in zip(summed(tensors), LARGE_SHAPES, strict=True):
            np.testing.assert_array_equal(total, np.full(shape, 3.0, np.float32))
        calls = [op for op in summed.get_concrete_function(tensors).graph.get_operations() if op.type == "PyFunc"]
        assert all(before in after.control_inputs for before, after in itertools.pairwise(calls))
        return recorded

    buckets = [[(5,), (1600, 1000), (600, 1000)], [(40,), (800, 1000), (1300, 1000)], [(100,)]]
    with two_members(shares_memory=False) as on_both:
        assert on_both(run) == [buckets] * 2
    with two_members() as on_both:  # nothing to wait for: one exchange
        assert [len(recorded) for recorded in on_both(run)] == [1, 1]


def test_rows_are_gathered_after_the_sums(on_both):
    def run(exchange, rank):
        rows = tf.IndexedSlices(tf.fill([1, 4], 1.0 + rank), tf.constant([rank]), tf.constant([1000, 4]))
        gathered, total = tf.function(exchange.sum)([rows, tf.constant([1.0, 2.0])])
        return gathered.values.numpy().tolist(), gathered.indices.numpy().tolist(), total.numpy().tolist()

    assert on_both(run) == [([[1.0] * 4, [2.0] * 4], [0, 1], [2.0, 4.0])] * 2


def test_a_length_that_is_not_known_to_the_graph(on_both):
    def run(exchange, rank):
        summed = tf.function(exchange.sum, input_signature=[[tf.TensorSpec([None, 2]), tf.TensorSpec([2])]])
        return [total.numpy().tolist() for total in summed([tf.fill([3, 2], 1.0 + rank), tf.fill([2], 5.0)])]

    assert on_both(run) == [[[[3.0, 3.0]] * 3, [10.0, 10.0]]] * 2


def test_gradients_of_sums_are_summed(on_both):
    def run(exchange, rank):
        @tf.function
        def gradients(tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                loss = tf.add_n([tf.reduce_sum(total * (rank + 1.0)) for total in exchange.sum(tensors)])
            return tape.gradient(loss, tensors)

        return gradients([tf.constant(value) for value in values(rank)])

    for found in on_both(run):
        for gradient, shape in zip(found, SHAPES, strict=True):
            np.testing.assert_array_equal(gradient, np.full(shape, 3.0, np.float32))


def test_small_tensors_of_other_shapes_are_refused(on_both):
    def run(exchange, rank):
        shapes = [(2, 3), (4,)] if rank else [(4,), (3, 2)]
        with pytest.raises(tf.errors.OpError):
            tf.function(exchange.sum)([tf.zeros(shape) for shape in shapes])
        return exchange.failure

    failures = on_both(run)
    assert any(isinstance(failure, ArgumentError) for failure in failures)
    assert all("checksum" in str(failure) for failure in failures)


@pytest.mark.parametrize("dtypes", [[np.float32], [np.float16, np.float64], [np.float32, np.float64]])
def test_timings_travel_with_the_first_sum(on_both, dtypes):
    """Once a step, as one more array; sums are what they are without."""

    def run(exchange, rank):
        tensors = [tf.constant(value) for value in values(rank, dtypes)]
        own_batch = tf.constant([0.0, 3.0 + rank], tf.float64)
        without = exchange.sum(tensors)
        tables = []
        exchange.timings.observers.append(lambda table: tables.append(table.copy()))
        recorded = record_exchanges(exchange)
        timed = tf.function(lambda tensors: exchange.sum(tensors, own_batch=own_batch))(tensors)
        for one, other in zip(timed, without, strict=True):
            np.testing.assert_array_equal(one, other)
        assert sum(shapes[-1] == (2, len(COLUMNS)) for shapes in recorded) == 1
        (table,) = tables
        return table.shape, table[:, COLUMNS.index("rows")].tolist()

    assert on_both(run) == [((2, len(COLUMNS)), [3.0, 4.0])] * 2


def test_no_timings_travel_where_nothing_could_carry_them(on_both):
    def run(exchange, rank):
        tables = []
        exchange.timings.observers.append(tables.append)
        total = exchange.sum([tf.constant([1, 2])], own_batch=tf.constant([0.0, 1.0], tf.float64))
        return total[0].numpy().tolist(), tables

    assert on_both(run) == [([2, 4], [])] * 2
