"""Whose link is slow, from what each worker says of the bytes that came to it."""

import numpy as np
import pytest
from step_tables import tables

from tfdist.balancing import COLUMNS, Judge, Rules, describe_straggler, summarize_steps
from tfdist.communication.transports.deliveries import Deliveries

DELIVERY, SLOWEST, LAG = (COLUMNS.index(name) for name in ("delivery", "slowest", "lag"))
FAST_S, SLOW_S = 0.002, 0.030


def told(num_workers, sends_late=(), gets_late=(), *, seed=0, exchange_s=0.060):
    """Tables of 20 steps, in which some workers' bytes are late, and to some all bytes are."""
    steps = np.asarray(tables(20, num_workers, noise=0.1, seed=seed))
    steps[:, :, COLUMNS.index("exchange")] = exchange_s
    random = np.random.default_rng(seed)
    for step in steps:
        for rank, row in enumerate(step):
            deliveries = Deliveries()
            for other in set(range(num_workers)) - {rank}:
                is_late = other in sends_late or rank in gets_late
                deliveries.note(other, (SLOW_S if is_late else FAST_S) * random.uniform(0.8, 1.2))
            usual_s, lag_s, slowest = deliveries.take()
            row[[DELIVERY, SLOWEST, LAG]] = usual_s, slowest + 1, lag_s
    return list(steps)


def judge(steps):
    judge = Judge(Rules())
    return [judge.judge(summarize_steps(steps, 0.25)) for _ in range(2)][-1]


@pytest.mark.parametrize("num_workers", [3, 4, 20])
@pytest.mark.parametrize("ways", ["to others", "from others", "both"])
def test_whose_link(num_workers, ways):
    for worker in (0, num_workers - 1):
        sends_late = [] if ways == "from others" else [worker]
        gets_late = [] if ways == "to others" else [worker]
        judgement = judge(told(num_workers, sends_late, gets_late))
        (straggler,) = judgement.stragglers
        assert (straggler.worker, straggler.part) == (worker, "link")
        assert straggler.peers_s == pytest.approx(FAST_S, rel=0.2)
        assert straggler.own_s == pytest.approx(SLOW_S, rel=0.3)
        assert straggler.cost.without_s < straggler.cost.step_s - 0.050
        names = [f"worker {rank}" for rank in range(num_workers)]
        assert f"worker {worker} is slow in 100% of the steps: its bytes take " in describe_straggler(straggler, names)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("num_workers", [2, 3, 4])
def test_links_alike(num_workers, seed):
    assert not judge(told(num_workers, seed=seed)).stragglers


def test_two_workers_cannot_tell_whose_link_it_is():
    assert not judge(told(2, sends_late=[1])).stragglers


def test_a_link_that_does_not_matter():
    """Fifteen times as slow as the others, and less than a tenth of the step."""
    steps = np.asarray(told(3, sends_late=[1]))
    steps[:, :, COLUMNS.index("compute")] += 0.5
    assert not judge(list(steps)).stragglers


def test_deliveries_add_up_until_they_are_taken():
    deliveries = Deliveries()
    assert deliveries.take() == (0.0, 0.0, -1)
    deliveries.note(3, 1.0)
    assert deliveries.take() == (1.0, 0.0, -1)
    for rank, seconds in [(1, 1.0), (2, 3.0), (0, 2.0), (2, 4.0)]:
        deliveries.note(rank, seconds)
    assert deliveries.take() == (1.5, 5.5, 2)
    assert deliveries.take() == (0.0, 0.0, -1)
