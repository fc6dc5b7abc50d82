"""Attempt after attempt leaves nothing: no process, no port, no file, no open descriptor in the launcher."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(400)

#: Runs a job of which every attempt but the last fails, and says what is open and left after each.
LAUNCHER = """
import json, os, sys
from pathlib import Path
from tfdist.launching import executor
from tfdist.launching.executor import run_job
from tfdist.launching.hangs import HangRules
from tfdist.launching.job_options import JobOptions
from tfdist.launching.lifecycle import LifecycleRules
from tfdist.launching.restarts import RestartPolicy

rounds, directory, fewest = int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
options = JobOptions(
    command=(sys.executable, str(directory / "task.py"), str(directory), str(rounds)),
    workers=2, fewest_workers=fewest, meeting=None, parameter_servers=0, evaluator=False,
    log_dir=directory / "logs", num_threads=1, rules=LifecycleRules(failure_grace_s=0.0), hangs=HangRules(),
    restarts=RestartPolicy(max_restarts=rounds, first_delay_s=0.0, same_failure_limit=10**6),
)
(directory / "logs").mkdir()
run_attempt = executor._run_attempt

def counted(*args, **kwargs):
    job = run_attempt(*args, **kwargs)
    with open(directory / "open", "a") as file:
        file.write(f"{len(os.listdir('/proc/self/fd'))}\\n")
    return job

executor._run_attempt = counted
raise SystemExit(run_job(options, os.environ))
"""
TASK = """
import os, socket, sys, time
from pathlib import Path
directory, rounds = Path(sys.argv[1]), int(sys.argv[2])
attempt, task = int(os.environ["TFDIST_ATTEMPT"]), os.environ["TFDIST_TASK"]
listening = socket.create_server(("127.0.0.1", 0))
with open(directory / "ports", "a") as file:
    file.write(f"{os.getpid()} {listening.getsockname()[1]}\\n")
until = time.monotonic() + 30  # the other one has told its port, too, before this one fails
while (directory / "ports").read_text().count("\\n") < 2 * (attempt + 1) and time.monotonic() < until:
    time.sleep(0.002)
if attempt < rounds:
    raise SystemExit(f"failure {attempt}" if task == "worker 1" else 0)
"""


@pytest.mark.parametrize("fewest", [None, 2])
@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=pytest.mark.campaign)])
def test_nothing_is_left(tmp_path, rounds, fewest):
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "task.py").write_text(TASK)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    result = subprocess.run(
        [sys.executable, str(tmp_path / "launcher.py"), str(rounds), str(tmp_path), json.dumps(fewest)],
        capture_output=True,
        text=True,
        timeout=380,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert tempfile.gettempdir() != str(temporary)
    assert list(temporary.iterdir()) == []
    counts = [int(line) for line in (tmp_path / "open").read_text().split()]
    assert len(counts) == rounds + 1
    assert max(counts) == min(counts), counts
    left = [line.split() for line in (tmp_path / "ports").read_text().splitlines()]
    assert len(left) == 2 * (rounds + 1)
    for pid, port in left:
        assert not Path(f"/proc/{pid}").exists()
        assert not is_listening(int(port))
    events = [json.loads(line)["event"] for line in (tmp_path / "logs" / "events.jsonl").read_text().splitlines()]
    assert events.count("started") == events.count("ended") == rounds + 1


def is_listening(port):
    """Whether some process of this network namespace listens at a port of the loopback interface."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[3] == "0A" and line.split()[1] == f"0100007F:{port:04X}" for line in lines)
