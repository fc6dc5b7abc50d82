"""The order of the signals between members that share memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.communication.transports.host_exchange import piece_bytes_for, shared_bytes, signal_positions

FIRST = ["ready 0", "ready 1"]  # two pieces ahead


@pytest.mark.parametrize(
    ("num_pieces", "result_signal", "expected"),
    [
        (1, None, ["ready 0"]),
        (3, None, ["ready 0", "ready 1", "ready 2"]),
        (1, "summed", ["ready 0", "summed 0"]),
        (4, "summed", [*FIRST, "ready 2", "summed 0", "ready 3", "summed 1", "summed 2", "summed 3"]),
        (1, "finished", ["ready 0", "finished 0"]),
        (4, "finished", [*FIRST, "ready 2", "ready 3", *(f"finished {piece}" for piece in range(4))]),
    ],
)
def test_order(num_pieces, result_signal, expected):
    positions = signal_positions(num_pieces, result_signal)
    assert [f"{signal} {piece}" for signal, piece in sorted(positions, key=positions.get)] == expected
    assert sorted(positions.values()) == list(range(len(expected)))


@given(st.integers(1, 40), st.sampled_from([None, "summed", "finished"]))
def test_there_are_enough_buffers(num_pieces, result_signal):
    """Whoever writes a piece knows from signals it has waited for that all have read what was in the buffer."""
    positions = signal_positions(num_pieces, result_signal)
    ahead = 2
    num_buffers = shared_bytes(1, 1) // 2
    for piece in range(num_pieces):
        overwritten = piece - num_buffers
        if overwritten < 0:
            continue  # of the sum before, all of whose signals have come
        heard = "ready", piece - ahead - 1  # what the writer has waited for last
        done_before = [done for done in range(num_pieces) if done + ahead < heard[1]]  # its sender has summed these
        assert overwritten in done_before
        if result_signal is not None:
            assert positions[heard] > positions.get((result_signal, overwritten - 1), -1)


def test_size_of_pieces():
    assert [piece_bytes_for(count) >> 10 for count in (1, 2, 4, 8, 32, 1000)] == [2048, 2048, 2048, 1024, 256, 256]
