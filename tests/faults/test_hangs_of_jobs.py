"""Jobs that hang: the launcher names the culprit, shows where it is, and goes on as after a loss."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(400)
SCRIPT = Path(__file__).with_name("hanging_training.py")


def run_job(directory, kind, *options):
    result = subprocess.run(
        [sys.executable, "-m", "tfdist", "run", "--hang-timeout-s", "6", *options, str(SCRIPT), str(directory), kind],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    return result.returncode, result.stdout + result.stderr


#: Kind -> what the diagnosis says of where it hangs, and a line of the culprit's stack.
KINDS = {
    "loop": ("worker 1 hangs at step 6 in the phase other for", "in spin_for_ever"),
    "stopped": ("worker 1 hangs at step 6 in the phase other for", "a stopped process gives none"),
    "input": ("worker 1 hangs at step 6 in the phase step for", "in rows_that_deadlock"),
    "step": ("worker 1 hangs at step 6 in the phase step for", "in spin_for_ever"),
}


def assert_diagnosed(said, kind):
    where, stack = KINDS[kind]
    (line,) = (line for line in said.splitlines() if "the job hangs: " in line)
    assert where in line
    assert "worker 0" not in line.partition("; ")[0]
    assert stack in said
    if kind == "step":
        assert "it computes without an end" in line
    if kind == "input":
        assert "it waits, most likely for its input pipeline" in line


def chosen(*kinds):
    """These in every run, the others in the campaign."""
    return [kind if kind in kinds else pytest.param(kind, marks=pytest.mark.campaign) for kind in KINDS]


@pytest.mark.parametrize("kind", chosen("input"))
def test_an_elastic_job_goes_on_without_the_culprit(tmp_path, kind):
    status, said = run_job(tmp_path, kind, "--workers", "1:2")
    assert (tmp_path / "hung").exists(), said[-5000:]
    assert_diagnosed(said, kind)
    assert "the job goes on with 1 worker" in said
    assert status == 0, said[-5000:]
    assert said.count("trained") == 1


@pytest.mark.parametrize("kind", chosen("stopped"))
def test_a_job_is_started_again_after_a_hang(tmp_path, kind):
    status, said = run_job(tmp_path, kind, "--workers", "3", "--max-restarts", "1")
    assert (tmp_path / "hung").exists(), said[-5000:]
    assert_diagnosed(said, kind)
    assert status == 0, said[-5000:]
    assert said.count("trained") == 3


@pytest.mark.campaign
@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_hangs_again_and_again(tmp_path, kind, attempt):
    status, said = run_job(tmp_path, kind, "--workers", "2:3")
    assert_diagnosed(said, kind)
    assert status == 0, said[-5000:]
