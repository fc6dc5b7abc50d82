"""`tfdist run --workers MIN:MAX` with real training: workers are lost, come again, and the launcher's status is 0."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tfdist.launching.ports import choose_free_ports

pytestmark = pytest.mark.timeout(400)
SCRIPT = Path(__file__).parents[1] / "faults" / "elastic_training.py"
RUN = [sys.executable, "-m", "tfdist", "run"]


def run_job(directory, workers, plan, *options):
    return subprocess.run(
        [*RUN, "--workers", workers, *options, str(SCRIPT), str(directory), json.dumps(plan)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )


def processes_with(text):
    """The processes of the machine with a text in their command line or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in said and int(process.name) != os.getpid():
            found.append(said)
    return found


def test_a_worker_is_lost_and_comes_again(tmp_path):
    plan = {"members": 3, "kills": {"worker 0": 5}}
    result = run_job(tmp_path, "1:3", plan, "--max-restarts", "1")
    assert result.returncode == 0, result.stderr[-5000:]
    said = result.stdout + result.stderr
    assert "worker 0 was killed by SIGKILL (signal 9); the job goes on with 2 workers" in said
    assert "starting worker 0 again" in said
    groups = [len(members.split(", ")) for members in re.findall(r"group \d+ of the job: (.*)", said)]
    assert groups == [3, 2, 3]
    finals = [np.load(path)["weight 0"] for path in tmp_path.glob("result *")]
    assert len(finals) == 3
    assert all((value == finals[0]).all() for value in finals)
    assert processes_with(str(tmp_path)) == []


def test_too_few_workers_end_the_job(tmp_path):
    plan = {"sleep_s": 0.05, "kills": {"worker 0": 5, "worker 1": 6}}
    result = run_job(tmp_path, "2:3", plan)
    assert result.returncode == 128 + 9
    assert "worker 0 was killed by SIGKILL (signal 9); the job goes on with 2 workers" in result.stderr
    assert "worker 1 ended afterwards: it was killed by SIGKILL" in result.stderr
    assert processes_with(str(tmp_path)) == []


def start_node(directory, rendezvous, plan, *options, secret="a secret", job="test"):
    command = [*RUN, "--nodes", "1:2", "--rendezvous", rendezvous, "--job", job, "--workers", "1", *options]
    return subprocess.Popen(
        [*command, str(SCRIPT), str(directory), json.dumps(plan)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TFDIST_JOB_SECRET": secret},
    )


def test_two_nodes_of_which_the_second_comes_late(tmp_path):
    """Two launchers on one machine. The first hosts the rendezvous, and begins alone when the other does not come."""
    (port,) = choose_free_ports(1)
    first = start_node(tmp_path, f"127.0.0.1:{port}", {"members": 2}, "--start-timeout-s", "5")
    nodes = [first]
    try:
        until = time.monotonic() + 120
        while not any(path.stat().st_size for path in tmp_path.glob("ledger *")):  # it trains
            assert first.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        nodes.append(start_node(tmp_path, f"127.0.0.1:{port}", {"members": 2}))
        said = [node.communicate(timeout=240)[0] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    assert [node.returncode for node in nodes] == [0, 0], said
    assert "The job has 2 members from step" in said[0]
    finals = [np.load(path)["weight 0"] for path in tmp_path.glob("result *")]
    assert len(finals) == 2
    assert (finals[0] == finals[1]).all()


@pytest.mark.campaign
def test_a_node_of_another_job_or_without_the_secret_is_turned_away(tmp_path):
    (port,) = choose_free_ports(1)
    address = f"127.0.0.1:{port}"
    first = start_node(tmp_path, address, {"members": 2}, "--start-timeout-s", "5")
    strangers = []
    try:
        wait_until_somebody_listens(port)
        strangers = [start_node(tmp_path, address, {}, job="other"), start_node(tmp_path, address, {}, secret="wrong")]
        for stranger in strangers:
            said, _ = stranger.communicate(timeout=120)
            assert stranger.returncode == 1
            assert "cannot reach the rendezvous service of its job" in said
    finally:
        for node in (first, *strangers):
            node.kill()
            node.wait()
            node.stdout.close()


def wait_until_somebody_listens(port):
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_nodes_need_a_secret_and_a_rendezvous(tmp_path):
    def run(*options, **env):
        clean = {name: value for name, value in os.environ.items() if name != "TFDIST_JOB_SECRET"}
        result = subprocess.run(
            [*RUN, *options, str(SCRIPT)], capture_output=True, text=True, timeout=60, env={**clean, **env}
        )
        assert result.returncode == 2
        return result.stderr

    assert "need a secret" in run("--nodes", "2", "--rendezvous", "127.0.0.1:1")
    assert "cannot be told from the command line" in run("--nodes", "2")
    assert "An address" in run("--nodes", "2", "--rendezvous", "here")
    nobody = run("--nodes", "2", "--rendezvous", "192.0.2.1:9", "--start-timeout-s", "1", TFDIST_JOB_SECRET="x")
    assert "Nobody hosts the rendezvous" in nobody


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--workers", "3:2"], "--workers cannot be 2"),
        (["--workers", "0:2"], "--workers cannot be 0"),
        (["--workers", "1:"], "--workers cannot be"),
        (["--workers", "1:2", "--ps", "1"], "An elastic job has workers only"),
    ],
)
def test_unusable_options(options, said):
    result = subprocess.run([*RUN, *options, str(SCRIPT)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert said in result.stderr
