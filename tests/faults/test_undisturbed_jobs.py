"""A job that is slow, and does not hang, is left alone: ten minutes with the limits that users get."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("patient_training.py")


@pytest.mark.campaign
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("workers", ["2", "2:2"])
def test_no_hang_is_seen_in_ten_minutes(tmp_path, workers):
    """A first step of 70 s, a callback of 90 s, 45 s without input, and evaluations of 70 s."""
    result = subprocess.run(
        [sys.executable, "-m", "tfdist", "run", "--workers", workers, str(SCRIPT), str(tmp_path), "600"],
        capture_output=True,
        text=True,
        timeout=1400,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    said = result.stdout + result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"trace", "callback", "input", "evaluation"}, said[-5000:]
    assert "hangs" not in said
    assert result.returncode == 0, said[-5000:]
    assert [int(seconds) >= 600 for seconds in re.findall(r"trained for (\d+) s", said)] == [True, True]
