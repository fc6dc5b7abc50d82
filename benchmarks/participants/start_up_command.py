"""`tfdist --help`, beside a Python interpreter that does nothing."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.participants.fresh_process import run_to_end
from benchmarks.place import Place

_CASES = {"python -c pass": ("-c", "pass"), "tfdist --help": ("-m", "tfdist", "--help")}


def measure(_: Place) -> dict[str, Any]:
    series = {}
    for label, arguments in _CASES.items():
        start = time.perf_counter()
        run_to_end(*arguments)
        series[label] = {"wall": [(time.perf_counter() - start) * 1000]}
    return {"series": series}
