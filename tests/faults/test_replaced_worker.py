"""Under parameter servers the launcher starts a lost worker again, alone, and the coordinator takes it back."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
RUN = [sys.executable, "-m", "tfdist", "run"]
SCRIPT = Path(__file__).with_name("replaced_worker.py")


def test_a_lost_worker_is_started_again_alone(tmp_path):
    job = subprocess.Popen(
        [*RUN, "--workers", "2", "--ps", "1", "--max-restarts", "1", str(SCRIPT), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "training").exists():
            assert job.poll() is None, job.stdout.read()
            assert time.monotonic() < until
            time.sleep(0.1)
        ((_, _, pid),) = (path.name.split() for path in tmp_path.glob("worker 1 *"))
        os.kill(int(pid), signal.SIGKILL)
        said, _ = job.communicate(timeout=200)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, said[-5000:]
    assert "worker 1 was killed by SIGKILL (signal 9); the job goes on with 1 worker, and it is started again" in said
    assert "trained" in said
    starts = sorted(path.name.rpartition(" ")[0] for path in tmp_path.glob("* *"))
    assert starts == ["chief", "ps 0", "worker 0", "worker 1", "worker 1"] or "chief 0" in starts[0], starts
    assert starts.count("worker 1") == 2
    assert starts.count("worker 0") == 1
