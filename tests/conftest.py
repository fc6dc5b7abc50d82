"""Makes the package importable by the processes that tests start, installed or not."""

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("JOB_ID", "REPORT_DIR", "TASK", "JOB_SECRET", "TRANSPORT", "START_TIMEOUT_S", "VERIFY_RUN")
    for name in ("TF_CONFIG", *(f"TFDIST_{name}" for name in ours)):
        monkeypatch.delenv(name, raising=False)
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.syspath_prepend(str(_ROOT))
