"""Who is held to have caused a failure."""

import pytest

from tfdist.communication.transports.interface import TimeLimit
from tfdist.communication.transports.problems import find_silent, from_report
from tfdist.errors import ArgumentError, PeerLostError, TfdistError, TimeLimitError

NAMES = ["worker 0 at a:1", "worker 1 at b:1", "worker 2 at c:1"]
LIMIT = TimeLimit(5, "exchange_timeout_s")


@pytest.mark.parametrize(
    ("waits_for", "expected"),
    [
        ({0: [1]}, [1]),  # it gave no answer
        ({0: [1], 1: [2]}, [2]),  # the one that is waited for waits itself
        ({0: [1, 2], 1: [2]}, [2]),
        ({0: [1, 2]}, [1, 2]),
        ({0: [1], 1: [2], 2: [3]}, [3]),
        ({0: [1], 2: [3]}, [1]),  # who waits elsewhere, does not matter
        ({0: [1], 1: [0]}, []),  # all answer
        ({0: [1], 1: [2], 2: [1]}, []),
        ({0: [1], 1: []}, []),
    ],
)
def test_who_is_silent(waits_for, expected):
    assert find_silent(waits_for, 0) == expected


@pytest.mark.parametrize(
    ("how", "error", "headline"),
    [
        ("lost", PeerLostError, "Lost worker 2 at c:1."),
        ("silent", TimeLimitError, "Nothing came from worker 2 at c:1 for 7 s."),
        ("failed", PeerLostError, "worker 2 at c:1 has left the group after an error of its own."),
    ],
)
def test_reports(how, error, headline):
    report = {"how": how, "ranks": [2], "detail": "some detail", "limit_s": 7}
    made = from_report(report, NAMES, 0, LIMIT, "worker 1 at b:1")
    assert isinstance(made, error)
    assert str(made).split("\n")[0] == headline
    assert "some detail" in str(made)
    assert "worker 2 at c:1 (this process)" in str(from_report(report, NAMES, 2, LIMIT))


def test_a_limit_has_to_be_positive():
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ArgumentError, match="exchange_timeout_s"):
            TimeLimit(seconds, "exchange_timeout_s")
    assert issubclass(ArgumentError, TfdistError)
