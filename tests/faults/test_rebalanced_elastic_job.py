"""Rows move in an elastic job, too, and its shares begin anew when a worker is lost: for `make campaign`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tfdist.testing import LocalCluster

pytestmark = [pytest.mark.timeout(400), pytest.mark.campaign]
SCRIPT = Path(__file__).with_name("straggling_training.py")
ROWS = 24  # as in the script


def test_a_worker_is_lost_after_rows_were_moved(tmp_path):
    plan = json.dumps({"kind": "speed", "worker": "worker 1", "rebalance": True, "epochs": 5})
    cluster = LocalCluster(
        workers=3,
        fewest_workers=2,
        script=SCRIPT,
        args=[str(tmp_path), plan],
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        time_limit_s=300,
    )
    with cluster:
        cluster.wait_for(lambda: "Shares of the global batch" in cluster.stderr("worker 0"), "rows to be moved")
        cluster.kill("worker 2")
        results = cluster.join("worker 0", "worker 1")
    found = json.loads((tmp_path / "worker 0").read_text())
    assert "The job goes on with 2 of 3 members" in results["worker 0"].stderr
    # Two thirds of the rows for the one that is twice as fast.
    assert found["rows"] == pytest.approx([16, 8], abs=2), results["worker 0"].stderr[-2000:]
    alone = [sys.executable, str(SCRIPT), str(tmp_path), plan]
    subprocess.run(alone, check=True, timeout=200, capture_output=True)
    right, *others = (np.load(tmp_path / f"weights {task}.npz") for task in ("alone", "worker 0", "worker 1"))
    for weights in others:
        for name in right.files:
            np.testing.assert_allclose(weights[name], right[name], rtol=1e-5, atol=1e-6)
