"""What the workers spend their time on is known to all of them after each step."""

import json
from pathlib import Path

import numpy as np
import pytest

from tfdist.balancing import COLUMNS
from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(200)
SCRIPT = Path(__file__).with_name("timed_training.py")
STEPS, SLEEP_S = 16, 0.2  # as in the script


@pytest.mark.parametrize("transport", ["tcp", "collective"])
@pytest.mark.parametrize("slow", ["input", "compute"])
def test_all_workers_see_what_makes_one_of_them_slow(tmp_path, slow, transport):
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    with LocalCluster(workers=2, script=SCRIPT, args=[str(tmp_path), slow, transport], env=env) as cluster:
        cluster.join()
    tables = [np.array(json.loads((tmp_path / f"worker {index}").read_text())) for index in range(2)]
    np.testing.assert_array_equal(*tables)
    assert tables[0].shape == (STEPS, 2, len(COLUMNS))
    assert (tables[0] >= 0).all()
    # Of the second epoch, which traces nothing.
    spent = dict(zip(COLUMNS, tables[0][STEPS // 2 :, 1].sum(axis=0), strict=True))
    other = {"input": "compute", "compute": "input"}[slow]
    assert spent[slow] > spent[other], spent
    assert spent[slow] > SLEEP_S * STEPS / 4, spent
    assert (tables[0][:, :, COLUMNS.index("rows")] == 4).all()
