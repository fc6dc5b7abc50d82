"""The event log of real jobs, and `tfdist report`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).parents[1] / "faults" / "elastic_training.py"
TFDIST = [sys.executable, "-m", "tfdist"]


def tfdist(*arguments):
    return subprocess.run(
        [*TFDIST, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )


def test_a_job_that_was_killed_once(tmp_path):
    plan = json.dumps({"kills": {"worker 1": 20}, "save_interval_steps": 8})
    job = tfdist(
        *("run", "--workers", 2, "--max-restarts", 1, "--log-dir", tmp_path / "logs", SCRIPT, tmp_path, plan),
    )
    assert job.returncode == 0, job.stderr[-5000:]
    events = [json.loads(line) for line in (tmp_path / "logs" / "events.jsonl").read_text().splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.count("started") == kinds.count("ended") == 2
    assert {"lost", "saved", "resumed", "task_times", "waiting"} <= set(kinds)
    (lost,) = (event for event in events if event["event"] == "lost" and event["task"] == "worker 1")
    assert lost["step"] == 20
    last = [event["step"] for event in events if event["event"] == "task_times"][-2:]
    assert last == [48, 48], "steps are counted from the checkpoint that training was resumed from"
    shown = tfdist("report", tmp_path / "logs")
    assert shown.returncode == 0, shown.stderr
    assert "2 attempts, status 0" in shown.stdout
    assert "recovery of tier 2" in shown.stdout
    report = json.loads(tfdist("report", "--json", tmp_path / "logs").stdout)
    assert sum(report["parts"].values()) == pytest.approx(report["wall_s"])
    assert report["parts"]["repeated work"] > 0
    assert report["parts"]["training"] > 0
    assert all(seconds >= -0.2 for seconds in report["parts"].values()), report


@pytest.mark.parametrize("content", [None, "", "hello\n{}\n"])
def test_no_log(tmp_path, content):
    if content is not None:
        (tmp_path / "events.jsonl").write_text(content)
    shown = tfdist("report", tmp_path)
    assert shown.returncode == 2
    assert "There is no event log of a job" in shown.stderr
