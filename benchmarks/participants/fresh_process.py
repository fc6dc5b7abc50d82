from __future__ import annotations

import subprocess
import sys

_LIMIT_S = 60.0


def run_to_end(*arguments: str) -> str:
    """Runs this Python anew, and returns what it wrote to standard output.

    Raises:
        subprocess.CalledProcessError, subprocess.TimeoutExpired: When it fails, or lasts longer than a minute.
    """
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=_LIMIT_S)
    return done.stdout
