"""A machine with a slow network, in a real job over network namespaces."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from network_namespaces import Network

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).parents[1] / "faults" / "straggling_training.py"
LIMIT_S = 200
PORT = 29500  # each machine of a test has all ports for itself


def run(directory, slow=None, *, workers=3, rate="100mbit"):
    """What the workers found, of a job in which one machine's link is slow."""
    plan = {"kind": "link", "units": 65_536, "epochs": 3}
    if shutil.which("tc") is None:
        pytest.skip("limiting a link needs tc")
    with Network(workers) as network, contextlib.ExitStack() as stack:
        if slow is not None:
            network.slow_down(slow, rate)
        addresses = [f"{host}:{PORT}" for host in network.hosts]
        processes = []
        for index, prefix in enumerate(network.prefixes):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            env = {**os.environ, "TF_CONFIG": json.dumps(task), "TF_CPP_MIN_LOG_LEVEL": "2"}
            env |= {"TFDIST_SHARED_MEMORY": "0", "STRAGGLING_TASK": f"worker {index}", "OMP_NUM_THREADS": "1"}
            env |= {"TFDIST_JOB_SECRET": "a secret"}
            process = subprocess.Popen(
                [*prefix, sys.executable, str(SCRIPT), str(directory), json.dumps(plan)],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            processes.append(process)
            stack.callback(process.communicate)
            stack.callback(process.kill)
        said = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * workers, said
    found = [json.loads((directory / f"worker {index}").read_text()) for index in range(workers)]
    assert all(each["stragglers"] == found[0]["stragglers"] for each in found)
    return found[0], said[0]


@pytest.mark.parametrize("slow", [1, *(pytest.param(rank, marks=pytest.mark.campaign) for rank in (0, 2))])
def test_whose_link_is_slow(tmp_path, slow):
    found, said = run(tmp_path, slow)
    print(found["report"])
    ((worker, part, without_s, step_s),) = found["stragglers"]
    assert (worker, part) == (slow, "link")
    assert without_s < step_s
    assert f"worker {slow} is slow in " in said
    assert "Look at its network card and cable" in said


@pytest.mark.campaign
def test_links_alike(tmp_path):
    found, _ = run(tmp_path)
    print(found["report"])
    assert found["alarms"] == []
