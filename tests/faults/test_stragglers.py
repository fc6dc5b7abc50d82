"""Who is slow, in what, and what it costs, in real jobs."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tfdist.cluster.job_events import LOG_NAME, parse_event
from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).with_name("straggling_training.py")
PART_OF = {"rows": "compute"}
ROWS = 24  # as in the script


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


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.campaign)])
def test_rows_move_from_a_worker_of_half_the_speed(tmp_path, workers):
    """Shares become those of the speeds; the rows of a step and the weights are those of one device."""
    plan = {"kind": "speed", "worker": "worker 1", "rebalance": True, "epochs": 4}
    found, said = run(tmp_path, workers, **plan)
    assert "Shares of the global batch from now on: " in said
    speeds = [1 / 2 if rank == 1 else 1 for rank in range(workers)]
    ideal = [ROWS * speed / sum(speeds) for speed in speeds]
    assert found["rows"] == pytest.approx(ideal, abs=2)
    ledgers = [(tmp_path / f"ledger worker {rank}").read_text().splitlines() for rank in range(workers)]
    steps = [" ".join(lines).split() for lines in zip(*ledgers, strict=True)]
    # The last step is that of a `fit` without the monitor, which has equal shares again.
    expected = [[str((step * ROWS + row) % (40 * ROWS)) for row in range(ROWS)] for step in [*range(160), 0]]
    assert steps == expected
    assert {len(lines[-1].split()) for lines in ledgers} == {ROWS // workers}
    alone = [sys.executable, str(SCRIPT), str(tmp_path), json.dumps(plan)]
    subprocess.run(alone, check=True, timeout=200, capture_output=True)
    right, *others = (np.load(tmp_path / f"weights {task}.npz") for task in ("alone", "worker 0", "worker 1"))
    for weights in others:
        for name in right.files:
            np.testing.assert_allclose(weights[name], right[name], rtol=1e-5, atol=1e-6)


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
