"""A network that is dead without a word: between members of a transport, and between the nodes of an elastic job."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from network_namespaces import Network
from transport_members import Members

LARGE = [[1_000_000]]
SCRIPT = Path(__file__).parents[1] / "faults" / "elastic_training.py"


@contextlib.contextmanager
def members_on(count, **limits):
    with Network(count) as network, Members(count, prefixes=network.prefixes) as members:
        addresses = [members.listen(host, [rank])[0] for rank, host in enumerate(network.hosts)]
        members.start_forming(addresses, shares_memory=False, **limits)
        members.answers()
        members.ask("reduce", shapes=LARGE)
        yield network, members


@pytest.mark.parametrize("shapes", [[[5]], LARGE])
def test_who_is_cut_off_is_named(shapes):
    """Amid exchanges, so that data is under way that nobody confirms."""
    with members_on(3, network_limit_s=5) as (network, members):
        members.tell("reduce", shapes=shapes, times=1_000_000)
        time.sleep(0.5)  # so that they are somewhere in an exchange; where, does not matter
        network.cut(2)
        for answer in members.answers([0, 1]):
            assert answer["error"] == "PeerLostError", answer
            headline = answer["message"].split("\n")[0]
            assert "worker 2 at 10.98.0.3:" in headline
            assert headline.count("worker") == 1
            assert "gave no answer for network_timeout_s=5" in answer["message"]
        assert members[2].answer()["error"] == "PeerLostError"


def test_a_stopped_process_on_a_living_network_is_waited_for():
    with members_on(2, network_limit_s=5) as (_, members):
        members[1].signal(signal.SIGSTOP)
        members.tell("reduce", shapes=LARGE)
        time.sleep(9)
        members[1].signal(signal.SIGCONT)
        assert [answer.get("error") for answer in members.answers()] == [None, None]


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("attempt", range(4))
def test_an_elastic_job_goes_on_without_the_node_that_is_cut_off(tmp_path, attempt):
    """Three nodes, of which the first hosts the rendezvous; one of the others is cut off."""
    lost = 1 + attempt % 2
    plan = {"sleep_s": 0.05, "epochs": 12, "checkpoints": attempt < 2}
    nodes = []
    with Network(3) as network, contextlib.ExitStack() as stack:
        for prefix in network.prefixes:
            command = [sys.executable, "-m", "tfdist", "run", "--nodes", "2:3", "--workers", "1", "--job", "test"]
            command += ["--rendezvous", f"{network.hosts[0]}:29400", str(SCRIPT), str(tmp_path), json.dumps(plan)]
            env = {**os.environ, "TFDIST_JOB_SECRET": "a secret", "TF_CPP_MIN_LOG_LEVEL": "2"}
            # All nodes are one machine, and would share memory.
            env |= {"TFDIST_NETWORK_TIMEOUT_S": "6", "TFDIST_SHARED_MEMORY": "0"}
            node = subprocess.Popen(
                [*prefix, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
            )
            nodes.append(node)
            stack.callback(node.communicate)
            stack.callback(node.kill)
        ledgers = wait_for_steps(tmp_path, nodes, 10 + attempt)
        network.cut(lost)
        said = [node.communicate(timeout=300)[0] for node in nodes]
    assert ledgers == 3
    survivors = [index for index in range(3) if index != lost]
    assert [nodes[index].returncode for index in survivors] == [0, 0], said
    assert nodes[lost].returncode != 0
    assert "cannot reach the rendezvous service of its job" in said[lost]
    lost_host = network.hosts[lost]
    for index in survivors:
        causes = [line for line in said[index].splitlines() if "Lost worker" in line]
        assert causes, said[index][-3000:]
        assert all(f"at {lost_host}:" in line for line in causes), causes
        assert "its machine, or the network between, gave no answer for TFDIST_NETWORK_TIMEOUT_S=6" in said[index]
    finals = [np.load(path)["weight 0"] for path in tmp_path.glob("result *")]
    assert len(finals) == 2
    assert (finals[0] == finals[1]).all()


def wait_for_steps(directory, nodes, count):
    """Waits until every worker has made some steps; returns how many workers have."""
    until = time.monotonic() + 200
    while True:
        ledgers = [path.read_text().count("\n") for path in directory.glob("ledger *")]
        if len(ledgers) == len(nodes) and min(ledgers) >= count:
            return len(ledgers)
        assert all(node.poll() is None for node in nodes)
        assert time.monotonic() < until, ledgers
        time.sleep(0.1)
