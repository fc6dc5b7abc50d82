"""Elastic training: workers are killed and come, and the training is that of one device."""

import collections
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tfdist.rendezvous.membership import Rules
from tfdist.rendezvous.server import RendezvousServer

pytestmark = pytest.mark.timeout(600)
SCRIPT = Path(__file__).with_name("elastic_training.py")
ROWS, BATCH, STEPS = 90, 12, 8


class ElasticJob:
    """Workers of an elastic job, without the launcher."""

    def __init__(self, directory, workers, plan, *, fewest=1, most=None):
        self.directory, self.plan = directory, plan
        self.secret = secrets.token_hex(16)
        self.most = most or workers
        self.fewest = fewest
        self.server = RendezvousServer(Rules(fewest, self.most, 120.0, 60.0), self.secret)
        self.processes = []
        for index in range(workers):
            self.start(index)

    def start(self, index):
        name = f"worker {index}"
        env = {
            **os.environ,
            "TFDIST_RENDEZVOUS": self.server.address,
            "TFDIST_ELASTIC_WORKERS": f"{self.fewest}:{self.most}",
            "TFDIST_JOB_ID": "test",
            "TFDIST_REPORT_DIR": str(self.directory),
            "TFDIST_TASK": name,
            "TFDIST_JOB_SECRET": self.secret,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_NUM_INTRAOP_THREADS": "1",
        }
        log = open(self.directory / f"log {name} {len(self.processes)}", "wb")  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(self.directory), json.dumps(self.plan)],
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        log.close()
        self.processes.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        self.server.close()

    def logs(self):
        return "\n\n".join(f"== {path.name}\n{path.read_text()[-5000:]}" for path in self.directory.glob("log *"))

    def wait_for_step(self, step, limit_s=120):
        until = time.monotonic() + limit_s
        while max(read_steps(self.directory), default=-1) < step:
            assert time.monotonic() < until, self.logs()
            time.sleep(0.02)

    def end(self, processes, limit_s=240):
        for process in processes:
            assert process.wait(limit_s) == 0, self.logs()


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
    with ElasticJob(tmp_path, 3, {}) as job:
        job.end(job.processes)
    assert_ledger_is_exact(tmp_path, 6)
    assert_equal_to(undisturbed, tmp_path, 3)


def test_workers_are_killed_between_steps(tmp_path, undisturbed):
    """The first member, the second and another one: the logs, too, are those of one device."""
    kills = {"worker 0": 11, "worker 1": 12, "worker 2": 27}
    with ElasticJob(tmp_path, 4, {"kills": kills}) as job:
        job.end([job.processes[3]])
        for process in job.processes[:3]:
            assert process.wait(10) == -signal.SIGKILL, job.logs()
    assert_ledger_is_exact(tmp_path, 6)
    assert_equal_to(undisturbed, tmp_path, 1)
    assert {round for rounds in read_steps(tmp_path).values() for round in rounds} == {0, 1, 2, 3}


@pytest.mark.parametrize("sgd", [True, pytest.param(False, marks=pytest.mark.campaign)])
def test_workers_are_killed_at_random(tmp_path, undisturbed, sgd):
    """The chief included. A step may be interrupted; logs may lack the rows that a lost worker had in one step."""
    with ElasticJob(tmp_path, 4, {"sleep_s": 0.05, "sgd": sgd}) as job:
        for number, index in enumerate(random.sample(range(4), 2)):
            job.wait_for_step(6 + 14 * number + random.randrange(8))
            time.sleep(random.random() * 0.1)
            job.processes[index].send_signal(signal.SIGKILL)
            assert job.processes[index].wait(10) == -signal.SIGKILL
        survivors = [process for process in job.processes if process.poll() is None]
        job.end(survivors)
        assert "goes on with 3 of 4 members" in job.logs()
        assert "goes on with 2 of 3 members" in job.logs()
    assert_ledger_is_exact(tmp_path, 6)
    if sgd:
        assert_equal_to(undisturbed, tmp_path, 2, with_history=False)


@pytest.mark.campaign
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("round", range(30))
def test_thirty_random_kills(tmp_path, undisturbed, round):
    """Any worker of three or four, at any moment of training: the others end with the weights of one device."""
    draw = random.Random(round)
    workers = draw.choice([3, 4])
    with ElasticJob(tmp_path, workers, {"sleep_s": 0.02}) as job:
        job.wait_for_step(draw.randrange(1, 44))
        time.sleep(draw.random() * 0.1)
        victim = job.processes[draw.randrange(workers)]
        victim.send_signal(signal.SIGKILL)
        assert victim.wait(10) == -signal.SIGKILL
        job.end([process for process in job.processes if process is not victim])
        assert f"goes on with {workers - 1} of {workers} members" in job.logs()
    assert_ledger_is_exact(tmp_path, 6)
    assert_equal_to(undisturbed, tmp_path, workers - 1, with_history=False)


def test_from_four_to_two_to_three(tmp_path, undisturbed):
    kills = {"worker 1": 4, "worker 3": 4}
    with ElasticJob(tmp_path, 4, {"members": 3, "kills": kills}, fewest=2) as job:
        for index in (1, 3):
            assert job.processes[index].wait(120) == -signal.SIGKILL
        job.start(1)
        job.end([job.processes[0], job.processes[2], job.processes[4]])
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
