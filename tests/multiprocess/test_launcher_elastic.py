"""`tfdist run --workers MIN:MAX` with real training: workers are lost, come again, and the launcher's status is 0."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
    plan = {"sleep_s": 0.4, "kills": {"worker 0": 5}}
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
    assert "worker 1 was killed by SIGKILL" in result.stderr
    assert processes_with(str(tmp_path)) == []


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
