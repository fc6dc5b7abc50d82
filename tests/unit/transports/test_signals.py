"""The order of the signals between members that share memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.communication.transports.host_exchange import signal_positions


@pytest.mark.parametrize(
    ("num_pieces", "result_signal", "expected"),
    [
        (1, None, ["ready 0"]),
        (3, None, ["ready 0", "ready 1", "ready 2"]),
        (1, "summed", ["ready 0", "summed 0"]),
        (3, "summed", ["ready 0", "ready 1", "summed 0", "ready 2", "summed 1", "summed 2"]),
        (1, "finished", ["ready 0", "finished 0"]),
        (3, "finished", ["ready 0", "ready 1", "ready 2", "finished 0", "finished 1", "finished 2"]),
    ],
)
def test_order(num_pieces, result_signal, expected):
    positions = signal_positions(num_pieces, result_signal)
    assert [f"{signal} {piece}" for signal, piece in sorted(positions, key=positions.get)] == expected
    assert sorted(positions.values()) == list(range(len(expected)))


@given(st.integers(1, 50), st.sampled_from(["summed", "finished"]))
def test_four_buffers_are_enough(num_pieces, result_signal):
    """Before a member says that piece k is ready, it has said that the result of k - 3 is done: see `HostExchange`."""
    positions = signal_positions(num_pieces, result_signal)
    for piece in range(4, num_pieces):
        assert positions["ready", piece] > positions[result_signal, piece - 3]
