"""The right worker and the right part in each of twenty jobs, no alarm in twenty healthy ones: for `make campaign`.

A seed says what is slow, where, and among how many workers. A slow processor is a process that is stopped for more than
half of the time that it would have, as under a CPU quota: of two cores, two workers have one each, four half a one.
While it waits for others a stop costs nothing, so its computing takes about twice as long.
"""

import json
import random
from pathlib import Path

import pytest
from throttled_process import throttled

from tfdist.testing import LocalCluster

pytestmark = [pytest.mark.timeout(400), pytest.mark.campaign]
SCRIPT = Path(__file__).with_name("straggling_training.py")
KINDS = ["half speed", "input", "rows", "other"]
PART_OF = {"half speed": "compute", "input": "input", "rows": "compute", "other": "other"}


def run(directory, workers, plan, *, throttled_worker=None):
    cluster = LocalCluster(
        workers=workers,
        script=SCRIPT,
        args=[str(directory), json.dumps(plan)],
        env={"TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1"},
        time_limit_s=300,
    )
    with cluster:
        if throttled_worker is not None:
            begun = directory / f"begun {throttled_worker}"
            cluster.wait_for(begun.exists, "the first epoch")
            with throttled(cluster.pid(throttled_worker), 0.8 / workers) as count:
                cluster.join()
            assert count[0] > 10
        else:
            cluster.join()
    return json.loads((directory / "worker 0").read_text())


@pytest.mark.parametrize("seed", range(20))
def test_the_right_worker_and_part(tmp_path, seed):
    random.seed(seed)
    workers = 2 if seed % 5 < 3 else 4
    kind = KINDS[seed % 4]
    slow = random.randrange(workers)
    name = f"worker {slow}"
    if kind == "half speed":
        plan = {"kind": "work", "epochs": 4, "window_steps": 20}
        found = run(tmp_path, workers, plan, throttled_worker=name)
    else:
        found = run(tmp_path, workers, {"kind": kind, "worker": name, "epochs": 3})
    print(seed, workers, kind, name, found["report"], sep="\n")
    assert [(worker, part) for worker, part, *_ in found["stragglers"]] == [(slow, PART_OF[kind])], found["report"]


@pytest.mark.parametrize("seed", range(20))
def test_no_alarm_where_all_are_healthy(tmp_path, seed):
    workers = 2 if seed % 5 < 3 else 4
    plan = {"kind": "work" if seed % 2 else "none", "epochs": 4, "window_steps": 20}
    found = run(tmp_path, workers, plan)
    assert found["alarms"] == [], found["report"]
