"""The transport on sockets and shared memory, between real processes."""

import glob
import re
import signal
import socket

import numpy as np
import pytest
from transport_members import Members, digest, inputs

SHAPES = [[], [5, 7], [0, 3], [1000], [300_001], [7], [2, 400_000]]
HALF = ("float16", "bfloat16")


def expected_sum(count, shapes, dtype, seed=0):
    """The sum in the order of ranks; in float32 and rounded once for the half-precision dtypes."""
    members = [inputs(rank, shapes, dtype, seed) for rank in range(count)]
    sums = []
    for arrays in zip(*members, strict=True):
        total = arrays[0].astype(np.float32) if dtype in HALF else arrays[0]
        with np.errstate(all="ignore"):
            for array in arrays[1:]:
                total = total + array.astype(total.dtype)
        sums.append(np.asarray(total, arrays[0].dtype))
    return digest(sums)


@pytest.mark.parametrize(
    ("count", "shares_memory"),
    [
        (2, True),
        (3, False),
        (5, True),
        *(
            pytest.param(count, shares, marks=pytest.mark.campaign)
            for count, shares in [(2, False), (3, True), (5, False)]
        ),
    ],
)
def test_sums_equal_numpys(count, shares_memory):
    with Members(count) as members:
        for answer in members.form(shares_memory=shares_memory):
            assert answer == {"hosts": [list(range(count))] if shares_memory else [[r] for r in range(count)]}
        for dtype in ("float32", "float64", "float16", "bfloat16", "int8", "int64", "uint16"):
            expected = {"digests": [expected_sum(count, SHAPES, dtype)]}
            assert members.ask("reduce", shapes=SHAPES, dtype=dtype, times=3) == [expected] * count, dtype
        for shapes in ([[1]], [[0]], [[count - 1]], [[17]] * 300, [[65_537]], [[4_000_003]]):
            expected = {"digests": [expected_sum(count, shapes, "float32")]}
            assert members.ask("reduce", shapes=shapes, times=5) == [expected] * count, shapes
        assert members.ask("modules") == [{"loaded": []}] * count
        members.ask("close")


@pytest.mark.parametrize("shares_memory", [True, False])
def test_a_member_may_be_one_small_sum_ahead(shares_memory):
    """While one waits for a slow member, a fast one has begun the next sum: its bytes wait in the socket."""
    with Members(4) as members:
        members.form(shares_memory=shares_memory)
        expected = {"digests": [expected_sum(4, [[1]], "float32")]}
        assert members.ask("reduce", shapes=[[1]], times=3000) == [expected] * 4


def test_gathers_rows_of_unequal_numbers():
    with Members(3) as members:
        members.form()
        for rank in range(3):
            members[rank].tell("gather", num_rows=rank * 2)
        assert members.answers() == [{"rows": [[], [[1] * 3] * 2, [[2] * 3] * 4]}] * 3


def test_several_hosts_give_equal_bits():
    with Members(5) as members:
        for rank in range(5):
            members[rank].ask("pretend_host", host="ab"[rank // 3])
        assert members.form()[0] == {"hosts": [[0, 1, 2], [3, 4]]}
        for shapes in (SHAPES, [[1]], [[9_000_001]]):
            answers = members.ask("reduce", shapes=shapes, dtype="int64", times=3)
            assert answers == [{"digests": [expected_sum(5, shapes, "int64")]}] * 5
            floats = members.ask("reduce", shapes=shapes, times=3)
            assert floats == [floats[0]] * 5
            assert len(floats[0]["digests"]) == 1


def test_a_host_of_one_member_among_others():
    with Members(3) as members:
        for rank in range(3):
            members[rank].ask("pretend_host", host="aab"[rank])
        assert members.form()[0] == {"hosts": [[0, 1], [2]]}
        answers = members.ask("reduce", shapes=SHAPES, dtype="int64")
        assert answers == [{"digests": [expected_sum(3, SHAPES, "int64")]}] * 3


def test_runs_give_equal_bits():
    answers = []
    for _ in range(2):
        with Members(3) as members:
            members.form()
            answers.append(members.ask("reduce", shapes=SHAPES))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_hosts(host):
    with Members(2) as members:
        members.form(host=host)
        assert members.ask("reduce", shapes=[[3]]) == [{"digests": [expected_sum(2, [[3]], "float32")]}] * 2


def test_the_name_of_this_machine():
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, 0)
    except OSError:
        pytest.skip(f"this machine's name {name} has no address here")
    with Members(2) as members:
        members.form(host=name)
        assert members.ask("reduce", shapes=[[3]]) == [{"digests": [expected_sum(2, [[3]], "float32")]}] * 2


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_bytes_sent(count):
    elements = 1_000_003
    with Members(count) as members:
        members.form(shares_memory=False)
        before = members.ask("bytes_sent")
        members.ask("reduce", shapes=[[elements]])
        after = members.ask("bytes_sent")
    ideal = 2 * (count - 1) / count * elements * 4
    header = 24 * (count - 1)
    for b, a in zip(before, after, strict=True):
        sent, again = a["bytes"] - b["bytes"], a["again"] - b["again"]
        assert abs(sent - again - ideal - header) <= 4 * count  # slices differ by an element
        assert sent <= ideal * 1.03 + header


def test_refused_memory_makes_them_use_sockets():
    with Members(3) as members:
        members[0].ask("limit_file_size", size_bytes=1 << 16)
        assert members.form() == [{"hosts": [[0], [1], [2]]}] * 3
        assert members.ask("reduce", shapes=[[9]]) == [{"digests": [expected_sum(3, [[9]], "float32")]}] * 3
        members[0].end()
        assert re.search(r"sockets instead of shared memory: the system refuses \d+ MB", "".join(members[0].log))


def test_memory_that_a_member_cannot_open_makes_them_use_sockets():
    with Members(2) as members:
        for rank in range(2):
            members[rank].ask("pretend_host", host="the same")
        if refused := members[1].ask("hide_processes").get("refused"):
            pytest.skip(f"a process may not have a /proc of its own here: {refused}")
        assert members.form() == [{"hosts": [[0], [1]]}] * 2
        assert members.ask("reduce", shapes=[[9]]) == [{"digests": [expected_sum(2, [[9]], "float32")]}] * 2
        members[0].end()
        assert "cannot be opened" in "".join(members[0].log)


def test_nothing_is_left_after_a_kill():
    before = set(glob.glob("/dev/shm/*"))
    with Members(2) as members:
        members.form()
        members.ask("reduce", shapes=[[100_000]])
        members[0].signal(signal.SIGKILL)
        members[1].signal(signal.SIGKILL)
    assert not [path for path in set(glob.glob("/dev/shm/*")) - before if "tfdist" in path]
