"""Small JSON files that tell by themselves whether they are whole: the text, and its digest in the last line.

A file that a killed process left is a beginning of it, or (after a loss of power) empty or full of zeros: its last line
is missing. A file that was changed afterwards has a last line that does not fit.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

__all__ = ["DamagedError", "TornError", "seal", "unseal"]

_PREFIX = b"// sha256 "
_LAST_LINE_BYTES = len(_PREFIX) + 64 + 1


class TornError(ValueError):
    """A sealed file whose writer did not come to its end."""


class DamagedError(ValueError):
    """A sealed file that was written to its end and is another one now."""


def seal(content: dict[str, Any]) -> bytes:
    """The bytes of a sealed file."""
    text = json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"
    return text + _PREFIX + hashlib.sha256(text).hexdigest().encode() + b"\n"


def unseal(data: bytes) -> dict[str, Any]:
    """Reads a sealed file.

    Raises:
        TornError: It has no last line.
        DamagedError: Its last line, or what stands before it, is not what was written.
    """
    text, last_line = data[:-_LAST_LINE_BYTES], data[-_LAST_LINE_BYTES:]
    if not data.endswith(b"\n") or b"\n" not in data[:-1] or not data.strip(b"\0"):
        raise TornError(f"it ends in the middle, after {len(data)} bytes")
    if last_line != _PREFIX + hashlib.sha256(text).hexdigest().encode() + b"\n":
        if _PREFIX not in data:
            raise TornError(f"it ends in the middle, after {len(data)} bytes")
        raise DamagedError("its digest is another one")
    content = json.loads(text)
    if not isinstance(content, dict):
        raise DamagedError("it is no JSON object")
    return content
