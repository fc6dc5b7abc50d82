"""The shares of the global batch, as tables: what the workers get until their times are equal."""

import pytest
from step_tables import tables

from tfdist.balancing import COLUMNS, Judge, Rules, next_shares, summarize_steps

RULES = Rules()


def run(seconds_a_row, rounds, *, fixed_s=0.0, batch=240, judge=None, shares=None):
    """What the workers have after some windows, each with the shares of the one before; all shares that there were."""
    judge = judge or Judge(RULES)
    n = len(seconds_a_row)
    history = [shares or [1 / n] * n]
    for _ in range(rounds):
        rows = [batch * share for share in history[-1]]
        by_worker = {w: {"compute": fixed_s + seconds_a_row[w] * rows[w] - 0.010} for w in range(n)}
        steps = tables(20, n, slow=by_worker, other=0.0)
        for step in steps:
            step[:, COLUMNS.index("rows")] = rows
        judgement = judge.judge(summarize_steps(steps, RULES.tolerance))
        changed = next_shares(history[-1], judgement, RULES)
        history.append(changed or history[-1])
    return history


@pytest.mark.parametrize(
    ("seconds_a_row", "shares"),
    [
        ([0.001, 0.002], [2 / 3, 1 / 3]),
        ([0.002, 0.001], [1 / 3, 2 / 3]),
        ([0.001, 0.001, 0.002, 0.001], [2 / 7, 2 / 7, 1 / 7, 2 / 7]),
        ([0.001, 0.001], [1 / 2, 1 / 2]),
    ],
)
def test_times_become_equal(seconds_a_row, shares):
    history = run(seconds_a_row, 6)
    assert history[1] == [1 / len(shares)] * len(shares)  # one window is no straggler
    assert history[-1] == pytest.approx(shares, rel=1e-6)


@pytest.mark.parametrize("fixed_s", [0.05, 0.2])
def test_a_cost_that_rows_do_not_change(fixed_s):
    """The longest step is at most 1.05 of the one in which all take as long."""
    seconds = [0.001, 0.003]
    shares = run(seconds, 12, fixed_s=fixed_s)[-1]
    times = [fixed_s + a_row * 240 * share for a_row, share in zip(seconds, shares, strict=True)]
    ideal = fixed_s + 240 / sum(1 / a_row for a_row in seconds)
    assert max(times) <= 1.05 * ideal


def test_one_that_recovers_gets_its_rows_back():
    judge = Judge(RULES)
    slow = run([0.001, 0.002], 4, judge=judge)[-1]
    assert slow == pytest.approx([2 / 3, 1 / 3])
    assert run([0.001, 0.001], 6, judge=judge, shares=slow)[-1] == pytest.approx([1 / 2, 1 / 2], abs=0.02)


def test_bounds():
    history = run([0.001, 0.001, 0.001, 0.1], 8)
    assert history[-1][3] == pytest.approx(0.25 / 4)
    assert history[-1][:3] == pytest.approx([(1 - 0.25 / 4) / 3] * 3)
    assert all(sum(shares) == pytest.approx(1) for shares in history)


def test_other_parts_move_no_rows():
    steps = tables(20, 2, slow={1: {"input": 0.02}})
    judge = Judge(RULES)
    for _ in range(3):
        judgement = judge.judge(summarize_steps(steps, RULES.tolerance))
        assert next_shares([0.5, 0.5], judgement, RULES) is None
    assert judgement.stragglers


def test_a_worker_without_rows_tells_nothing():
    steps = tables(20, 2, slow={1: {"compute": 0.02}})
    for step in steps:
        step[1, COLUMNS.index("rows")] = 0
    judge = Judge(RULES)
    judge.judge(summarize_steps(steps, RULES.tolerance))
    assert next_shares([0.5, 0.5], judge.judge(summarize_steps(steps, RULES.tolerance)), RULES) is None
