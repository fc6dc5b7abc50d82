"""The transport on MPI, in real MPI jobs. mpi4py and mpich are of the group `test`."""

import subprocess
import sys
from pathlib import Path

import pytest
from test_transports_tcp import expected_sum

_MPIEXEC = Path(sys.executable).parent / "mpiexec"


def run(scenario, count):
    program = str(Path(__file__).parent / "transport_mpi_member.py")
    command = [str(_MPIEXEC), "-n", str(count), sys.executable, program, scenario, str(count)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sums_and_gathers(count):
    done = run("sums", count)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for dtype in ("float32", "float16", "int64"):
        for shapes in ([[]], [[0]], [[17], [3, 5]], [[300_001], [7]]):
            line = f"sum {dtype} {shapes} {expected_sum(count, shapes, dtype)}"
            assert lines.count(line) == count, (line, done.stdout)
    assert lines.count(f"rows {[[[rank, rank]] * rank for rank in range(count)]}") == count


def test_another_number_of_workers():
    done = run("size", 2)
    assert done.stdout.count("refused") == 2
    assert "2 processes in the MPI job, 3 workers" in done.stdout
    assert "mpirun -n 3" in done.stdout


def test_a_stopped_member_is_named_and_the_job_ends():
    done = run("stop", 3)
    assert done.returncode != 0
    assert "Nothing came from worker 0 for 2 s" in done.stdout
    assert "exchange_timeout_s=2" in done.stdout
