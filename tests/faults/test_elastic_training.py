"""Elastic training: workers are killed and come, and the training is that of one device."""

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(600)
SCRIPT = Path(__file__).with_name("elastic_training.py")
ROWS, STEPS = 90, 8  # as in the script
KILLED = -signal.SIGKILL


def elastic(directory, workers, plan, *, fewest=1):
    return LocalCluster(
        workers=workers,
        fewest_workers=fewest,
        script=SCRIPT,
        args=[str(directory), json.dumps(plan)],
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        time_limit_s=400,
    )


def wait_for_step(cluster, directory, step):
    cluster.wait_for(lambda: max(read_steps(directory), default=-1) >= step, f"step {step}")


def stderr_of(results):
    return "\n".join(each.stderr for each in results.values())


def read_steps(directory):
    """Of each step, the ids that every round has trained on."""
    steps = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in directory.glob("ledger *"):
        for line in path.read_text().splitlines():
            if line.endswith("}"):
                said = json.loads(line)
                if "step" in said:
                    steps[said["step"]][said["round"]] += said["ids"]
    return steps


def assert_ledger_is_exact(directory, epochs):
    steps = read_steps(directory)
    assert sorted(steps) == list(range(epochs * STEPS))
    for epoch in range(epochs):
        ids = []
        for step in range(epoch * STEPS, (epoch + 1) * STEPS):
            ids += steps[step][max(steps[step])]  # the last round is the one that counts
        assert sorted(ids) == list(range(ROWS)), f"epoch {epoch}"


def result(directory):
    return [dict(np.load(path)) for path in directory.glob("result *")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("alone")
    subprocess.run(
        [sys.executable, str(SCRIPT), str(directory), json.dumps({"epochs": 6, "checkpoints": False})],
        check=True,
        timeout=240,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    (only,) = result(directory)
    return only


def assert_equal_to(undisturbed, directory, count, *, with_history=True):
    results = result(directory)
    assert len(results) == count
    for found in results:
        for name, value in undisturbed.items():
            if name.startswith("history"):
                if with_history:
                    num = min(len(found[name]), len(value))  # a newcomer's begins later
                    np.testing.assert_allclose(found[name][-num:], value[-num:], rtol=1e-4, atol=1e-5, err_msg=name)
            else:
                np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
        for name in (name for name in found if name.startswith(("weight", "optimizer", "final"))):
            np.testing.assert_array_equal(found[name], results[0][name], err_msg=name)


@pytest.mark.campaign
def test_undisturbed(tmp_path, undisturbed):
    with elastic(tmp_path, 3, {}) as cluster:
        cluster.join()
    assert_ledger_is_exact(tmp_path, 6)
    assert_equal_to(undisturbed, tmp_path, 3)


@pytest.mark.campaign
def test_workers_are_killed_between_steps(tmp_path, undisturbed):
    """The first member, the second and another one: the logs, too, are those of one device."""
    kills = {"worker 0": 11, "worker 1": 12, "worker 2": 27}
    with elastic(tmp_path, 4, {"kills": kills}) as cluster:
        results = cluster.join(check=False)
        assert [each.returncode for each in results.values()] == [KILLED, KILLED, KILLED, 0], cluster.describe()
    assert_ledger_is_exact(tmp_path, 6)
    assert_equal_to(undisturbed, tmp_path, 1)
    assert {round for rounds in read_steps(tmp_path).values() for round in rounds} == {0, 1, 2, 3}


def test_workers_are_killed_within_steps(tmp_path, undisturbed):
    """The others do the step again, which may have changed nothing: not the count of steps, metrics, nor a layer's."""
    kills = {"worker 0": 11, "worker 1": 12, "worker 2": 27}
    with elastic(tmp_path, 4, {"kills_within": kills}) as cluster:
        results = cluster.join(check=False)
        assert [each.returncode for each in results.values()] == [KILLED, KILLED, KILLED, 0], cluster.describe()
    assert_ledger_is_exact(tmp_path, 6)
    assert_equal_to(undisturbed, tmp_path, 1)
    rounds = read_steps(tmp_path)
    assert [max(rounds[step]) for step in (11, 12, 27)] == [1, 2, 3]


@pytest.mark.campaign
@pytest.mark.parametrize("sgd", [True, False])
def test_workers_are_killed_at_random(tmp_path, undisturbed, sgd):
    """The chief included. A step may be interrupted; logs may lack the rows that a lost worker had in one step."""
    victims = random.sample(range(4), 2)
    with elastic(tmp_path, 4, {"sleep_s": 0.05, "sgd": sgd}) as cluster:
        for number, index in enumerate(victims):
            wait_for_step(cluster, tmp_path, 6 + 14 * number + random.randrange(8))
            time.sleep(random.random() * 0.1)
            cluster.kill(f"worker {index}")
            assert cluster.returncode(f"worker {index}") == KILLED
        results = cluster.join(*(f"worker {index}" for index in range(4) if index not in victims))
    assert "goes on with 3 of 4 members" in stderr_of(results)
    assert "goes on with 2 of 3 members" in stderr_of(results)
    assert_ledger_is_exact(tmp_path, 6)
    if sgd:
        assert_equal_to(undisturbed, tmp_path, 2, with_history=False)


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("round", range(30))
def test_thirty_random_kills(tmp_path, undisturbed, round):
    """Any worker of three or four, at any moment of training: the others end with the weights of one device."""
    draw = random.Random(round)
    workers = draw.choice([3, 4])
    victim = f"worker {draw.randrange(workers)}"
    with elastic(tmp_path, workers, {"sleep_s": 0.02}) as cluster:
        wait_for_step(cluster, tmp_path, draw.randrange(1, 44))
        time.sleep(draw.random() * 0.1)
        cluster.kill(victim)
        assert cluster.returncode(victim) == KILLED
        results = cluster.join(*(name for name in cluster.task_names if name != victim))
    assert f"goes on with {workers - 1} of {workers} members" in stderr_of(results)
    assert_ledger_is_exact(tmp_path, 6)
    assert_equal_to(undisturbed, tmp_path, workers - 1, with_history=False)


def test_from_four_to_two_to_three(tmp_path, undisturbed):
    kills = {"worker 1": 4, "worker 3": 4}
    with elastic(tmp_path, 4, {"members": 3, "kills": kills}, fewest=2) as cluster:
        for victim in kills:
            cluster.wait_for(lambda victim=victim: cluster.returncode(victim) == KILLED, f"the end of {victim}")
        cluster.restart("worker 1")
        cluster.join("worker 0", "worker 1", "worker 2")
    assert_ledger_is_exact(tmp_path, 6)
    assert_equal_to(undisturbed, tmp_path, 3)
    sizes = [sizes_by_round[max(sizes_by_round)] for sizes_by_round in read_sizes(tmp_path)]
    assert [size for k, size in enumerate(sizes) if k == 0 or size != sizes[k - 1]] == [4, 2, 3]


def read_sizes(directory):
    """Of each step, in order, how many members each round had."""
    sizes = collections.defaultdict(dict)
    for path in directory.glob("ledger *"):
        for line in path.read_text().splitlines():
            if line.endswith("}") and "step" in (said := json.loads(line)):
                sizes[said["step"]][said["round"]] = said["members"]
    return [sizes[step] for step in sorted(sizes)]
