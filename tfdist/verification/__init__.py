"""Whether training on several replicas is the training of one device: records of runs, and what to conclude from them.

Pure: the standard library, NumPy and `errors`. `recording` makes the records.
"""

from tfdist.verification.comparison import Comparison, compare_runs
from tfdist.verification.findings import Cause, Finding
from tfdist.verification.record import ModelFacts, RunRecord
from tfdist.verification.report import describe_comparison

__all__ = [
    "Cause",
    "Comparison",
    "Finding",
    "ModelFacts",
    "RunRecord",
    "compare_runs",
    "describe_comparison",
]
