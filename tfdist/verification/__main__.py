"""Compares the records that the runs of a verification left: `python -m tfdist.verification DIRECTORY TOLERANCE`.

Prints the report. Ends with status 0, 1 when something differs, 2 when there is nothing to compare.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tfdist.errors import TfdistError
from tfdist.verification.comparison import compare_runs
from tfdist.verification.record import load_runs
from tfdist.verification.report import describe_comparison


def main(arguments: list[str]) -> int:
    """Compares, prints, and returns the status."""
    directory, tolerance = Path(arguments[0]), float(arguments[1])
    try:
        comparison = compare_runs(*load_runs(directory), tolerance=tolerance)
    except TfdistError as error:
        print(f"tfdist: {error}", file=sys.stderr)
        return 2
    print(describe_comparison(comparison))
    return int(bool(comparison.findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
