"""The rule by which a worker is a straggler, as tables."""

import numpy as np
import pytest
from step_tables import tables

from tfdist.balancing import COLUMNS, PARTS, Judge, Rules, summarize_steps

RULES = Rules()


def judge(*windows, rules=RULES):
    """The judgements of windows one after the other."""
    judge = Judge(rules)
    return [judge.judge(summarize_steps(each, rules.tolerance)) for each in windows]


def slow_workers(judgement):
    return [straggler.worker for straggler in judgement.stragglers]


@pytest.mark.parametrize("num_workers", [2, 3, 4, 40])
@pytest.mark.parametrize("part", PARTS)
def test_the_worker_and_the_part(num_workers, part):
    for worker in {0, num_workers - 1}:
        steps = tables(20, num_workers, slow={worker: {part: 0.010}}, noise=0.1)
        first, second = judge(steps, steps)
        assert slow_workers(first) == []  # one window could be chance
        (straggler,) = second.stragglers
        assert (straggler.worker, straggler.part) == (worker, part)
        assert straggler.own_s - straggler.peers_s == pytest.approx(0.010, rel=0.2)
        assert straggler.persistence == 1.0


@pytest.mark.parametrize("num_workers", [2, 4])
@pytest.mark.parametrize("seed", range(20))
def test_no_alarm_among_equals(num_workers, seed):
    windows = [tables(20, num_workers, noise=0.2, seed=100 * seed + k) for k in range(10)]
    assert all(judgement.is_well for judgement in judge(*windows))


def test_a_few_long_steps_are_no_straggler():
    """Three steps of each twenty take ten times as long: noise, however long."""
    steps = tables(20, 2, slow={1: {"compute": lambda step: 0.1 if step % 7 == 0 else 0.0}})
    assert all(judgement.is_well for judgement in judge(steps, steps, steps))


def test_every_other_step_is_not_persistent():
    steps = tables(20, 3, slow={1: {"compute": lambda step: 0.02 if step % 2 else 0.0}})
    assert all(judgement.is_well for judgement in judge(steps, steps, steps))


@pytest.mark.parametrize(("num_slow", "is_slow"), [(12, False), (14, False), (15, True)])
def test_the_persistence(num_slow, is_slow):
    """Three quarters of 20 steps are 15; the median is that of the slow ones in all of them."""
    steps = tables(20, 3, slow={1: {"compute": lambda step: 0.02 if step < num_slow else 0.0}})
    assert slow_workers(judge(steps, steps)[1]) == ([1] if is_slow else [])


@pytest.mark.parametrize(("larger", "is_slow"), [(0.03, False), (0.004, True)])
def test_four_standard_errors(larger, is_slow):
    """Longer in every step, and by a quarter in the median; but half of the steps say little of the others."""
    smaller = 0.0025
    steps = tables(20, 2, slow={1: {"compute": lambda step: larger if step % 2 else smaller}})
    window = summarize_steps(steps, RULES.tolerance)
    excess = window.own[1] - window.peers[1]
    assert window.persistence[1] == 1.0
    assert excess > RULES.tolerance * window.peers[1]
    assert (excess > 4 * window.noise[1]) == is_slow
    assert slow_workers(judge(steps, steps)[1]) == ([1] if is_slow else [])


@pytest.mark.parametrize(("excess", "is_slow"), [(0.0015, False), (0.0026, False), (0.0030, True)])
def test_the_tolerance(excess, is_slow):
    """A quarter of 11 ms is 2.75."""
    steps = tables(20, 3, slow={2: {"compute": excess}})
    assert slow_workers(judge(steps, steps)[1]) == ([2] if is_slow else [])


def test_less_than_a_millisecond_is_nothing():
    parts = {"compute": 0.001, "other": 0.0}
    steps = tables(20, 2, slow={1: {"compute": 0.0009}}, **parts)
    assert slow_workers(judge(steps, steps)[1]) == []
    steps = tables(20, 2, slow={1: {"compute": 0.0011}}, **parts)
    assert slow_workers(judge(steps, steps)[1]) == [1]


def test_noise_explains_what_is_within_it():
    draw = np.random.default_rng(0)

    def wild(_):
        return 0.05 * abs(draw.standard_normal())

    steps = tables(20, 2, slow={0: {"compute": wild}, 1: {"compute": lambda step: 0.004 + wild(step)}})
    window = summarize_steps(steps, RULES.tolerance)
    assert window.noise[1] > 0.002
    assert judge(steps, steps)[1].is_well


def test_it_stays_one_until_it_is_well_again_twice():
    slow = tables(20, 2, slow={1: {"compute": 0.01}})
    less = tables(20, 2, slow={1: {"compute": 0.002}})  # between an eighth and a quarter: neither
    well = tables(20, 2)
    judgements = judge(slow, slow, less, less, less, well, slow, well, well, slow)
    found = "".join("S" if each.stragglers else "-" for each in judgements)
    assert found == "-SSSSSSS--"


def test_what_it_costs():
    """11 ms and 2 for the bytes, instead of 21 and 2."""
    steps = tables(20, 4, slow={2: {"compute": 0.010}})
    cost = judge(steps, steps)[1].stragglers[0].cost
    assert cost.step_s == pytest.approx(0.023)
    assert cost.without_s == pytest.approx(0.013)
    assert cost.share == pytest.approx(10 / 23)


def test_of_two_stragglers_the_faster_costs_nothing():
    steps = tables(20, 5, slow={1: {"compute": 0.010}, 3: {"input": 0.020}})
    first, second = judge(steps, steps)[1].stragglers
    assert (first.worker, first.part, second.worker, second.part) == (1, "compute", 3, "input")
    assert first.cost.share == 0
    assert second.cost.without_s == pytest.approx(0.023)


def test_a_cost_is_of_each_step_and_not_of_the_medians():
    """Two others are slow in turns: without the straggler a step still waits for one of them."""
    in_turns = {0: {"compute": lambda step: 0.005 * (step % 2)}, 1: {"compute": lambda step: 0.005 * (1 - step % 2)}}
    steps = tables(20, 3, slow={**in_turns, 2: {"compute": 0.020}})
    assert judge(steps, steps)[1].stragglers[0].cost.without_s == pytest.approx(0.018)


def test_what_cannot_be_balanced():
    all_wait = tables(20, 3, input=0.02)
    assert [(each.is_input_bound, each.is_network_bound) for each in judge(all_wait)] == [(True, False)]
    one_waits = tables(20, 3, slow={1: {"input": 0.02}})
    assert not judge(one_waits)[0].is_input_bound
    network = tables(20, 3, transfer=0.02)
    assert [(each.is_input_bound, each.is_network_bound) for each in judge(network)] == [(False, True)]


def test_steps_that_build_a_graph_do_not_count():
    steps = tables(20, 2)
    for step in steps[:15]:
        step[1, COLUMNS.index("trace")] = 3.0
        step[1, COLUMNS.index("compute")] = 9.0
    assert summarize_steps(steps, 0.25).num_steps == 5
    assert summarize_steps(steps, 0.25).own == pytest.approx([0.011, 0.011])
    assert summarize_steps(steps[:15], 0.25) is None
    assert summarize_steps([], 0.25) is None


def test_a_single_worker_waits_for_nobody():
    (judgement,) = judge(tables(20, 1))
    assert judgement.is_well
    assert judgement.window.waiting == [0.0]


def test_a_thousand_workers():
    """Twenty of them are slow."""
    slow = {worker: {"compute": 0.01} for worker in range(7, 1000, 50)}
    steps = tables(20, 1000, slow=slow, noise=0.1)
    judgement = judge(steps, steps)[1]
    assert slow_workers(judgement) == sorted(slow)
