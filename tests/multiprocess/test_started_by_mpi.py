"""A recipe that a real mpiexec starts, without a TF_CONFIG. mpich is of the group `test`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).resolve().parents[2]
MPIEXEC = Path(sys.executable).parent / "mpiexec"


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.campaign)])
def test_the_digits(count):
    env = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "TFDIST_BASE_PORT")}
    command = [str(MPIEXEC), "-n", str(count), sys.executable, str(ROOT / "recipes" / "digits.py"), "--epochs", "3"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=250, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"the cluster from MPI (PMI_RANK, PMI_SIZE) has {count} workers" in done.stderr
    (accuracy,) = (line for line in done.stdout.splitlines() if line.startswith("test_accuracy="))
    assert float(accuracy.partition("=")[2]) > 0.8
