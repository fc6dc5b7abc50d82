"""A recipe that a real Slurm starts on two nodes, without a TF_CONFIG."""

import sys
from pathlib import Path

import pytest
from slurm_cluster import Slurm

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).resolve().parents[2]


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
