"""What importing tfdist costs on top of TensorFlow and Keras, and before them, each in a fresh interpreter."""

from __future__ import annotations

from typing import Any

from benchmarks.participants.fresh_process import run_to_end
from benchmarks.place import Place

_STACK = "import tensorflow, keras"
_TFDIST = "import tfdist; [getattr(tfdist, name) for name in tfdist.__all__]"
_TIMED = """
import time
{before}
start, used = time.perf_counter(), time.process_time()
{timed}
print((time.perf_counter() - start) * 1000, (time.process_time() - used) * 1000)
"""
_CASES = {
    "import tensorflow, keras": ("", _STACK),
    "then import tfdist, every public name": (_STACK, _TFDIST),
    "import tfdist alone": ("", "import tfdist"),
}


def measure(_: Place) -> dict[str, Any]:
    series = {}
    for label, (before, timed) in _CASES.items():
        wall, cpu = run_to_end("-c", _TIMED.format(before=before, timed=timed)).split()[-2:]
        series[label] = {"wall": [float(wall)], "cpu": [float(cpu)]}
    return {"series": series}
