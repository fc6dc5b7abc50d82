"""A recipe that a real Slurm starts on two nodes, without a TF_CONFIG."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from slurm_cluster import Slurm

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).resolve().parents[2]
TRAINING = Path(__file__).with_name("slurm_training.py")
STEPS = 60  # as in the training


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with Slurm(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm


def batch(directory, *lines):
    path = directory / "job.sh"
    path.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    return path


def test_the_digits_on_two_nodes(slurm, tmp_path):
    recipe = ROOT / "recipes" / "digits.py"
    script = batch(
        tmp_path,
        f"#SBATCH --nodes=2 --ntasks-per-node=1 --output={tmp_path}/output",
        f"srun --label {sys.executable} {recipe} --epochs 3",
    )
    slurm.wait(slurm.submit(script, TF_CPP_MIN_LOG_LEVEL="2"))
    said = (tmp_path / "output").read_text()
    assert "the cluster from Slurm (SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NODELIST) has 2 workers" in said
    (accuracy,) = (line for line in said.splitlines() if "test_accuracy=" in line)
    assert accuracy.startswith("0: ")
    assert float(accuracy.partition("=")[2]) > 0.8


def submit_printed(slurm, directory):
    """Submits what `tfdist slurm` prints for the training."""
    command = [sys.executable, "-m", "tfdist", "slurm", "--nodes", "2", "--python", sys.executable]
    command += [f"--option=--output={directory}/output", str(TRAINING), str(directory)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    (directory / "job.sh").write_text(printed)
    return slurm.submit(directory / "job.sh", TF_CPP_MIN_LOG_LEVEL="2")


def steps_of(directory, task=0):
    """The steps that a task has made, and the processes that were it."""
    path = directory / f"steps {task}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(map(int, line.split())) for line in lines]


def wait_for_step(directory, step, limit_s=100):
    until = time.monotonic() + limit_s
    while not any(made >= step for made, _ in steps_of(directory)):
        assert time.monotonic() < until, (directory / "output").read_text()[-3000:]
        time.sleep(0.1)


def assert_as_alone(directory):
    subprocess.run([sys.executable, str(TRAINING), str(directory)], check=True, timeout=120, capture_output=True)
    right, *others = (np.load(directory / f"weights {task}.npz") for task in ("alone", 0, 1))
    for weights in others:
        for name in right.files:
            np.testing.assert_allclose(weights[name], right[name], rtol=1e-5, atol=1e-6)


def test_a_signal_saves_and_the_job_goes_on_from_the_queue(slurm, tmp_path):
    job = submit_printed(slurm, tmp_path)
    wait_for_step(tmp_path, 12)
    slurm.run("scancel", "--signal=USR1", job)
    slurm.wait(job, limit_s=200)
    made = steps_of(tmp_path)
    assert len({process for _, process in made}) == 2
    assert [step for step, _ in made] == list(range(1, STEPS + 1))  # no step was made twice
    assert "Training goes on from step-" in (tmp_path / "output").read_text()
    assert_as_alone(tmp_path)


def test_a_killed_task_is_started_again(slurm, tmp_path):
    job = submit_printed(slurm, tmp_path)
    wait_for_step(tmp_path, 12)
    os.kill(steps_of(tmp_path, 1)[-1][1], signal.SIGKILL)
    slurm.wait(job, limit_s=200)
    # Of the killed task, or of those that srun then ends.
    assert re.search("The step has ended with status (137|143), start 1 of 4", (tmp_path / "output").read_text())
    assert len({process for _, process in steps_of(tmp_path, 1)}) == 2
    assert {step for step, _ in steps_of(tmp_path)} == set(range(1, STEPS + 1))
    assert_as_alone(tmp_path)
