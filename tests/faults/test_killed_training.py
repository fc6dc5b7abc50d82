"""Training that is killed again and again, and started again: nothing is lost, nothing is trained on twice."""

import collections
import json
import random
from pathlib import Path

import numpy as np
import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(1500)

SCRIPT = Path(__file__).with_name("killed_training.py")
ROWS, STEPS = 44, 6  # as in the script
WORKERS = {"none": 1, "mirrored": 1, "1 worker": 1, "2 workers": 2, "4 workers": 4}


def live(directory, kind, plan):
    """Runs the job until it ends, or the killed task is gone."""
    with LocalCluster(
        workers=plan.get("workers", WORKERS[kind]),
        script=SCRIPT,
        args=[str(directory), kind, json.dumps(plan)],
        time_limit_s=240,
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
    ) as cluster:
        results = cluster.join(check=plan.get("task") is None)
        description = cluster.describe()
    return results, description


def check_killed(directory, plan, results, description):
    """The kill happened where it was meant."""
    notes = {path.name.split(" ", 2)[2]: path.read_text() for path in directory.glob(f"killed {plan['life']} *")}
    victims = {name for name in results if plan["task"] in (name, "all")}
    assert notes.keys() <= victims, description
    assert notes, description
    if plan["task"] != "all":  # of all, those who are a moment later may be told that a peer is lost
        assert notes.keys() == victims, description
    if plan.get("signal_after"):
        assert {result.returncode for result in results.values()} == {75}, description
        return
    for name, where in notes.items():
        assert results[name].returncode == -9, description
        assert where.startswith("in " if plan.get("operation") else "after step"), where
    for result in results.values():
        assert "trained" not in result.stdout, description


def read_ledgers(directory, life):
    """The ids of each step of one life, those of all tasks together; the last step of it may be incomplete."""
    steps = collections.defaultdict(list)
    for path in directory.glob(f"ledger {life} *"):
        for line in path.read_text().splitlines():
            step, _, ids = line.partition(":")
            steps[int(step)] += map(int, ids.split())
    return steps


def check_ledger(directory, lives):
    """Of the lives, each from where it went on, the steps make whole epochs: every row once in each."""
    steps = {}
    for life in range(lives):
        now = read_ledgers(directory, life)
        if not now:
            continue
        begin = min(now)
        assert begin <= (max(steps) + 1 if steps else 0), "a step is missing"
        for step in range(begin, max(steps, default=-1) + 1):
            if step in now and len(steps[step]) == len(now[step]):
                assert sorted(now[step]) == sorted(steps[step]), "a step that was repeated had other rows"
        steps = {step: ids for step, ids in steps.items() if step < begin} | now
    assert sorted(steps) == list(range(len(steps)))
    assert len(steps) % STEPS == 0
    for epoch in range(len(steps) // STEPS):
        ids = [i for step in range(epoch * STEPS, (epoch + 1) * STEPS) for i in steps[step]]
        assert sorted(ids) == list(range(ROWS)), f"epoch {epoch}"
    return len(steps)


def run_undisturbed(directory, kind, **options):
    directory.mkdir()
    live(directory, kind, {"life": 0, **options})
    num_steps = check_ledger(directory, 1)
    return dict(np.load(directory / "result.npz")), num_steps


def run_killed(directory, kind, plans, then=None):
    directory.mkdir()
    for plan in ({**plan, "life": life} for life, plan in enumerate(plans)):
        results, description = live(directory, kind, plan)
        check_killed(directory, plan, results, description)
    last = {**plans[-1], "life": len(plans), "task": None, "steps": None, "operation": None, "signal_after": None}
    results, description = live(directory, kind, {**last, **(then or {})})
    assert "Training goes on from" in description
    num_steps = check_ledger(directory, len(plans) + 1)
    return dict(np.load(directory / "result.npz")), num_steps


def check_equal(directory, kind, plans):
    expected, num_steps = run_undisturbed(directory / "undisturbed", kind)
    found, num_steps_of_killed = run_killed(directory / "killed", kind, plans)
    assert num_steps_of_killed == num_steps
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize(
    ("kind", "plans"),
    [
        ("mirrored", [{"task": "all", "steps": 7}, {"task": "all", "operation": 14}]),
        pytest.param(
            "2 workers",
            [{"task": "worker 1", "steps": 5}, {"task": "worker 0", "operation": 9}],
            marks=pytest.mark.campaign,
        ),
    ],
)
def test_killed_twice(tmp_path, kind, plans):
    check_equal(tmp_path, kind, plans)


def draw_plan(draw, kind):
    num_workers = WORKERS[kind]
    task = draw.choice([f"worker {draw.randrange(num_workers)}", "all"])
    if draw.random() < 0.5:
        return {"task": task, "steps": draw.randint(5, 8)}
    return {"task": task, "operation": draw.randint(1, 24 if task in ("worker 0", "all") else 8)}


@pytest.mark.campaign
def test_one_worker_is_asked_to_end(tmp_path):
    """All workers save together and end with the status that asks for another start."""
    plans = [{"task": "worker 1", "signal_after": 8}, {"task": "worker 0", "signal_after": 9}]
    check_equal(tmp_path, "2 workers", plans)


@pytest.mark.campaign
def test_data_of_each_worker(tmp_path):
    """Every worker's position in its own data is found again."""
    expected, num_steps = run_undisturbed(tmp_path / "undisturbed", "2 workers", function=True)
    plans = [{"task": "worker 1", "steps": 9, "function": True}]
    found, num_steps_of_killed = run_killed(tmp_path / "killed", "2 workers", plans)
    assert num_steps_of_killed == num_steps
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.campaign
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 4)])
def test_another_number_of_workers(tmp_path, before, after):
    """The position in the data is found again, so the rows of every step are the same."""
    kind = "2 workers"
    expected, num_steps = run_undisturbed(tmp_path / "undisturbed", kind, plain=True, workers=before)
    plans = [{"task": "all", "steps": 9, "plain": True, "workers": before}]
    found, num_steps_of_killed = run_killed(tmp_path / "killed", kind, plans, then={"workers": after})
    assert num_steps_of_killed == num_steps
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", WORKERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_five_times(tmp_path, kind, seed):
    draw = random.Random(f"{kind} {seed}")
    # At the fifth step of a life the save of its second is complete, since that of its fourth has waited for it.
    first = {"task": "all", "steps": 5}
    check_equal(tmp_path, kind, [first, *(draw_plan(draw, kind) for _ in range(4))])
