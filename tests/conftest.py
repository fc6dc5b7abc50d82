"""Makes the package importable by the processes that tests start, installed or not."""

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "TF_CONFIG",
        "TFDIST_JOB_ID",
        "TFDIST_REPORT_DIR",
        "TFDIST_TASK",
        "TFDIST_START_TIMEOUT_S",
        "TFDIST_VERIFY_RUN",
    ):
        monkeypatch.delenv(name, raising=False)
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.syspath_prepend(str(_ROOT))
