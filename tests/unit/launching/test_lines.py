"""Cutting output into lines, however it arrives."""

import random

import pytest

from tfdist.launching.lines import LineSplitter


def split(*pieces, now=0.0):
    splitter = LineSplitter()
    lines = [line for piece in pieces for line in splitter.feed(piece, now)]
    return lines, splitter.finish()


@pytest.mark.parametrize(
    ("pieces", "lines", "rest"),
    [
        ([b"a\nb\n"], [b"a", b"b"], []),
        ([b"a", b"b", b"\n"], [b"ab"], []),
        ([b"a"], [], [b"a"]),
        ([b"\n\n"], [b"", b""], []),
        ([b"\xff\x00\n"], [b"\xff\x00"], []),  # bytes that are no text
        ([b"a\r\nb\r\n"], [b"a", b"b"], []),  # line ends of another system
        ([b"1/3\r2/3\r3/3\n"], [b"3/3"], []),
        ([b"1/3\r", b"2/3\r", b"3/3", b"\n"], [b"3/3"], []),
        ([b"1/3\r", b"3/3\r", b"\n"], [b"3/3"], []),  # the last state, then an empty one
        ([b"1/3", b"\r", b"2/3"], [], [b"2/3"]),
        ([b"1/3\r"], [], [b"1/3"]),
    ],
)
def test_lines(pieces, lines, rest):
    assert split(*pieces) == (lines, rest)


def test_a_progress_bar_without_an_end_is_shown_every_ten_seconds():
    splitter = LineSplitter()
    shown = [(now, line) for now in range(25) for line in splitter.feed(b"%d/25\r" % now, now)]
    assert shown == [(10, b"10/25"), (20, b"20/25")]
    assert splitter.finish() == [b"24/25"]


def test_a_huge_line_stays_whole_up_to_its_limit():
    line = b"x" * (8 * 2**20)
    assert split(line, line[:5], b"\n") == ([line + line[:5]], [])
    lines, rest = split(line, line, b"yz", b"\n")
    assert b"".join(lines + rest) == line + line + b"yz"
    assert len(lines) == 2


def test_any_cut_gives_the_same_lines():
    rng = random.Random(0)
    text = bytes(rng.choice(b"ab\n") for _ in range(2000))
    pieces, left = [], text
    while left:
        size = rng.randrange(1, 9)
        pieces.append(left[:size])
        left = left[size:]
    lines, rest = split(*pieces)
    assert b"\n".join(lines + (rest or [b""])) == text
