"""What is said of workers and parameter servers."""

import pytest

from tfdist.balancing import AsynchronousLoad, Rules, describe_asynchronous_load, format_asynchronous_load, slow_workers

MB = 1 << 20


def load(milliseconds, num_steps=None, server_bytes=(2 * MB, 2 * MB)):
    counts = num_steps or [100] * len(milliseconds)
    seconds = {worker: each / 1000 for worker, each in enumerate(milliseconds)}
    return AsynchronousLoad(dict(enumerate(counts)), seconds, server_bytes)


@pytest.mark.parametrize(
    ("milliseconds", "num_steps", "slow"),
    [
        ([20, 20], None, []),
        ([20, 24], None, []),
        ([20, 26], None, [1]),
        ([60, 20, 21, 19], None, [0]),
        ([20, 60], [100, 9], []),  # too few to tell
        ([1.0, 1.5], None, []),  # below the floor
        ([20], None, []),
    ],
)
def test_slow_workers(milliseconds, num_steps, slow):
    assert slow_workers(load(milliseconds, num_steps), Rules()) == slow


def test_what_a_slow_worker_costs():
    """Two workers make 50 and 25 steps a second: with two fast ones it were 100, a third more than 75."""
    (said,) = describe_asynchronous_load(load([20, 40], [200, 100]), Rules())
    assert "worker 1 is slow: a step takes 40.0 ms, 20.0 ms on the others. It has made 33% of the steps" in said
    assert said.endswith("Without that the job would make 33% more steps.")


@pytest.mark.parametrize(
    ("server_bytes", "is_said"),
    [((9 * MB, MB), True), ((MB // 2, 0), False), ((5 * MB, 4 * MB), False), ((9 * MB,), False)],
)
def test_a_server_that_holds_most(server_bytes, is_said):
    said = describe_asynchronous_load(load([20, 20], server_bytes=server_bytes), Rules())
    assert bool(said) == is_said
    if is_said:
        assert said[0].startswith("ps 0 holds 9.4 MB of the 10.5 MB that steps read and update")


def test_the_table():
    assert format_asynchronous_load(load([20, 40], [200, 100])).splitlines() == [
        "worker       steps     share   ms a step",
        "worker 0       200       67%        20.0",
        "worker 1       100       33%        40.0",
        "variables that steps read and update: ps 0 2.1 MB, ps 1 2.1 MB",
    ]
