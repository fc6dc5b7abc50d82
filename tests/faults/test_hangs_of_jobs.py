"""Jobs that hang: the launcher names the culprit, shows where it is, and goes on as after a loss."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(400)
SCRIPT = Path(__file__).with_name("hanging_training.py")


def run_job(directory, kind, *options, culprit="worker 1", step=6):
    command = [sys.executable, "-m", "tfdist", "run", "--hang-timeout-s", "6", *options]
    result = subprocess.run(
        [*command, str(SCRIPT), str(directory), kind, culprit, str(step)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    assert (directory / "hung").exists(), (result.stdout + result.stderr)[-5000:]
    return result.returncode, result.stdout + result.stderr


#: Kind -> the phase in an elastic job and in another, how it is described, and a line of the culprit's stack.
KINDS = {
    "loop": ("other", "other", "it computes without an end between two steps, as in a callback", "in spin_for_ever"),
    "stopped": ("other", "other", "its process is stopped (state T)", "a stopped process gives none"),
    "stopped anywhere": (r"\w+", r"\w+", "its process is stopped (state T)", "a stopped process gives none"),
    "input": ("input", "step", "it waits in its input pipeline", "in rows_of_input"),
    "input loop": ("input", "step", "it computes without an end in its input pipeline", "in rows_of_input"),
    "step": ("step", "step", "it waits in wait_for_ever (", "in called_in_the_step"),
    "step loop": ("step", "step", "it computes without an end in spin_for_ever (", "in called_in_the_step"),
}


def assert_diagnosed(said, kind, *, is_elastic, culprit="worker 1", step=6, num_workers=3):
    elastic_phase, phase, how, stack = KINDS[kind]
    (line,) = (line for line in said.splitlines() if "the job hangs: " in line)
    accused, _, victims = line.partition("the job hangs: ")[2].partition("; ")
    expected_step = r"\d+" if kind == "stopped anywhere" else step
    expected = (
        rf"{culprit} hangs at step {expected_step} in the phase {elastic_phase if is_elastic else phase} for \d+ s"
    )
    assert re.match(expected, accused), line
    assert how in accused
    if kind != "stopped anywhere":
        others = [f"worker {index}" for index in range(num_workers) if f"worker {index}" != culprit]
        wait = "waits" if len(others) == 1 else "wait"
        assert victims == f"{', '.join(others)} {wait} for it in an exchange"
    assert stack in said
    assert said.count("[tfdist] killing") == 1
    assert f"[tfdist] killing {culprit}\n" in said


def chosen(*kinds):
    """These in every run, the others in the campaign."""
    return [kind if kind in kinds else pytest.param(kind, marks=pytest.mark.campaign) for kind in KINDS]


@pytest.mark.parametrize("kind", chosen("input"))
def test_an_elastic_job_goes_on_without_the_culprit(tmp_path, kind):
    status, said = run_job(tmp_path, kind, "--workers", "1:2")
    assert_diagnosed(said, kind, is_elastic=True, num_workers=2)
    assert "the job goes on with 1 worker" in said
    assert status == 0, said[-5000:]
    assert said.count("trained") == 1


@pytest.mark.parametrize("kind", chosen())
def test_a_job_is_started_again_after_a_hang(tmp_path, kind):
    status, said = run_job(tmp_path, kind, "--workers", "3", "--max-restarts", "1")
    assert_diagnosed(said, kind, is_elastic=False)
    assert status == 0, said[-5000:]
    assert said.count("trained") == 3


@pytest.mark.campaign
@pytest.mark.parametrize("culprit", ["worker 0", "worker 2"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_worker_may_hang_at_any_step(tmp_path, kind, culprit):
    step = {"worker 0": 3, "worker 2": 9}[culprit]
    status, said = run_job(tmp_path, kind, "--workers", "2:3", culprit=culprit, step=step)
    assert_diagnosed(said, kind, is_elastic=True, culprit=culprit, step=step)
    assert status == 0, said[-5000:]
    assert said.count("trained") == 2
