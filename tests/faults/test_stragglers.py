"""Who is slow, in what, and what it costs, in real jobs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tfdist.cluster.job_events import LOG_NAME, parse_event
from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).with_name("straggling_training.py")
PART_OF = {"rows": "compute"}


def run(directory, workers, **plan):
    """What the workers found, and what the chief said."""
    with LocalCluster(
        workers=workers,
        script=SCRIPT,
        args=[str(directory), json.dumps(plan)],
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        time_limit_s=200,
    ) as cluster:
        results = cluster.join()
    found = [json.loads((directory / f"worker {index}").read_text()) for index in range(workers)]
    assert all(each["stragglers"] == found[0]["stragglers"] for each in found)
    return found[0], results["worker 0"].stderr


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.campaign) for kind in ("input", "other")), "rows"]
)
def test_the_slow_worker_is_named(tmp_path, kind):
    found, said = run(tmp_path, 2, kind=kind, worker="worker 1")
    ((worker, part, without_s, step_s),) = found["stragglers"]
    assert (worker, part) == (1, PART_OF.get(kind, kind))
    assert without_s < step_s
    assert "Load balance, epoch " in said
    assert "worker 1 is slow in " in said
    if kind == "rows":
        assert "It has 24.0 rows a step, the others 6.0" in said


def test_nothing_is_said_where_all_is_well(tmp_path):
    found, said = run(tmp_path, 2, kind="none")
    assert found["stragglers"] == []
    assert "is slow in" not in said


def test_a_slow_step_and_the_event_log(tmp_path):
    plan = json.dumps({"kind": "compute", "worker": "worker 0"})
    command = [sys.executable, "-m", "tfdist", "run", "--workers", "2", "--log-dir", str(tmp_path / "logs")]
    job = [*command, str(SCRIPT), str(tmp_path), plan]
    said = subprocess.run(job, check=True, timeout=200, capture_output=True, text=True).stderr
    assert "worker 0 is slow in " in said
    events = [parse_event(line) for line in (tmp_path / "logs" / LOG_NAME).read_text().splitlines()]
    (found,) = (event.fields for event in events if event.event == "straggler")
    assert (found["worker"], found["is_slow"], found["part"]) == ("worker 0", True, "compute")
    assert found["reason"].startswith("worker 0 is slow in ")
    assert 0 < found["cost"] < 1
