"""Records as JSON: what goes in comes out again, or is refused with the place where it stands."""

from __future__ import annotations

import json
from typing import Any

from tfdist.checkpointing.save_problems import RecordError

__all__ = ["decode_record", "encode_record"]

_SCALARS = (str, int, float, bool, type(None))


def encode_record(record: dict[str, Any], name: str) -> bytes:
    """The bytes of a record.

    Args:
        record: JSON values.
        name: How the record is called in messages.

    Raises:
        RecordError: It holds something else. The message says where.
    """
    return json.dumps(_plain(record, name), indent=1).encode() + b"\n"


def decode_record(data: bytes) -> dict[str, Any]:
    """Reads a record."""
    record = json.loads(data)
    assert isinstance(record, dict)  # its digest is right
    return record


def _plain(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise RecordError(f"{place} has the key {key!r}, which is no string")
        return {key: _plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{place}[{number}]") for number, item in enumerate(value)]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of NumPy's
        value = value.item()
    if not isinstance(value, _SCALARS):
        raise RecordError(f"{place} is of type {type(value).__name__}")
    return value
