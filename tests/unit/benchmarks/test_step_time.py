import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.step_time import (
    Line,
    Network,
    StepCosts,
    calibrate_overhead,
    fit_line,
    fit_overhead,
    pairwise_all_reduce_ms,
    predict_step_ms,
    relative_error,
    ring_all_reduce_ms,
    small_exchange_ms,
)

COSTS = StepCosts(
    cores=2,
    compute_ms={(64, 1): 4.0, (64, 2): 5.0, (32, 2): 3.0},
    read_ms=Line(0.2, 0.001),
    exchange_ms={2: Line(0.1, 1e-6), 4: Line(0.5, 2e-6)},
    gradient_bytes=1_000_000,
)


@given(alpha=st.floats(0.01, 10), beta=st.floats(1e-8, 1e-5))
def test_a_line_is_found_again(alpha, beta):
    line = fit_line([(size, alpha + beta * size) for size in (1_000, 100_000, 10_000_000)])
    assert line.alpha == pytest.approx(alpha, rel=1e-6)
    assert line.beta == pytest.approx(beta, rel=1e-4)


def test_small_sizes_count_as_much_as_large_ones():
    # Absolute errors would follow the largest point, and miss the smallest one by several times its time.
    points = [(1_000, 0.1), (2_000, 0.1), (1_000_000, 1.1), (10_000_000, 12.0)]
    line = fit_line(points)
    assert all(abs(relative_error(line.at(size), time)) < 0.1 for size, time in points)


@given(st.lists(st.tuples(st.integers(1, 10**8), st.floats(0.01, 1000)), min_size=1))
def test_no_cost_is_negative(points):
    line = fit_line(points)
    assert line.alpha >= 0
    assert line.beta >= 0


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(5, 2.0)], Line(2.0, 0.0)),
        ([(5, 2.0), (5, 2.0)], Line(2.0, 0.0)),
        ([(1, 1.0), (2, 3.0)], Line(0.0, 15 / 13)),  # through (1, 1) and (2, 3) alpha would be -1
        ([(1, 2.0), (3, 1.0)], Line(1.2, 0.0)),  # it would fall
    ],
)
def test_points_that_are_no_rising_line(points, expected):
    line = fit_line(points)
    assert (line.alpha, line.beta) == pytest.approx((expected.alpha, expected.beta))


@pytest.mark.parametrize(
    ("workers", "rows", "expected"),
    [
        (1, 64, 4.0),
        (2, 64, 5.0 + 0.064 + 1.1),
        (2, 32, 3.0 + 0.032 + 1.1),
        (4, 64, 2 * (5.0 + 0.192) + 2.5),  # two workers a core take turns
    ],
)
def test_a_step(workers, rows, expected):
    assert predict_step_ms(COSTS, workers, rows) == pytest.approx(expected)


def test_what_was_not_measured_is_not_predicted():
    with pytest.raises(KeyError):
        predict_step_ms(COSTS, 4, 16)
    with pytest.raises(KeyError):
        predict_step_ms(COSTS, 3, 64)


@pytest.mark.parametrize("workers", [2, 4])
def test_the_calibrated_overhead_predicts_its_own_case(workers):
    overhead = calibrate_overhead(COSTS, workers, 64, 20.0)
    calibrated = StepCosts(**{**vars(COSTS), "overhead_ms": overhead})
    assert predict_step_ms(calibrated, workers, 64) == pytest.approx(20.0)


def test_an_overhead_is_below_0_where_a_step_is_faster_than_its_parts():
    assert calibrate_overhead(COSTS, 2, 64, 6.0) == pytest.approx(6.0 - 6.164)


@pytest.mark.parametrize(
    ("points", "alpha", "beta"),
    [
        ([(100, 2.0)], 2.0, 0.0),
        ([(100, 2.0), (300, -2.0)], 4.0, -0.02),
        ([(0, 0.0), (1, 2.0), (2, 1.0)], 0.5, 0.5),
    ],
)
def test_overheads_of_models_are_a_line_that_may_fall(points, alpha, beta):
    line = fit_overhead(points)
    assert (line.alpha, line.beta) == pytest.approx((alpha, beta))


def test_all_reduces_on_a_network():
    network = Network(latency_ms=0.5, wire_ms_per_byte=1e-5, host_ms_per_byte=1e-6, host_ms_per_message=0.1)
    moving = 2 * 3 / 4 * 1_000_000 * 1e-5
    assert ring_all_reduce_ms(network, 4, 1_000_000) == pytest.approx(6 * 0.6 + moving)
    assert pairwise_all_reduce_ms(network, 4, 1_000_000) == pytest.approx(2 * (0.5 + 3 * 0.1) + moving)
    assert small_exchange_ms(network, 4) == pytest.approx(0.5 + 3 * 0.1)


def test_a_fast_network_waits_for_the_host():
    network = Network(latency_ms=0.0, wire_ms_per_byte=1e-9, host_ms_per_byte=1e-6, host_ms_per_message=0.0)
    assert ring_all_reduce_ms(network, 2, 1_000_000) == pytest.approx(1.0)


def test_two_members_are_a_ring_and_a_pair():
    network = Network(latency_ms=0.5, wire_ms_per_byte=1e-5, host_ms_per_byte=1e-6, host_ms_per_message=0.1)
    assert ring_all_reduce_ms(network, 2, 1000) == pytest.approx(pairwise_all_reduce_ms(network, 2, 1000))
