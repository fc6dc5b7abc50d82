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
    """Whoever writes to a buffer knows from a signal it has waited for that its sender is done with what was in it."""
    positions = signal_positions(num_pieces, result_signal)
    ahead = 2
    num_buffers = shared_bytes(1, 1) // 2
    for piece in range(num_buffers, num_pieces):  # what is overwritten before belongs to the sum before
        overwritten = piece - num_buffers
        # A slot: the writer has waited for `heard`. Its sender said so after it had read all pieces before `said_at`.
        heard = piece - ahead - 1
        said_at = heard - ahead
        assert overwritten < said_at
        # A result: before it sums a piece, a member has waited until all have said that their slots are ready. They
        # said so after they had copied the old result out, which follows after the signal of that result.
        if result_signal is not None:
            assert positions["ready", piece] > positions[result_signal, overwritten]
            assert overwritten < piece - 2 * ahead


def test_size_of_pieces():
    assert [piece_bytes_for(count) >> 10 for count in (1, 2, 4, 8, 32, 1000)] == [2048, 2048, 2048, 1024, 256, 256]
