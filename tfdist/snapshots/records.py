"""Records as JSON: what goes in comes out again, or is refused with the place where it stands."""

from __future__ import annotations

import json
from typing import Any

from tfdist.checkpointing.save_problems import RecordError

__all__ = ["copy_record", "decode_record", "encode_record"]

_SCALARS = (str, int, float, bool, type(None))

#: Where a value stands: what holds it, and its key there. The outermost is a name.
_Place = tuple[Any, Any]


def copy_record(record: dict[str, Any], name: str) -> dict[str, Any]:
    """A copy of a record that shares nothing with it that can change.

    Args:
        record: JSON values.
        name: How the record is called in messages.

    Raises:
        RecordError: It holds something else. The message says where.
    """
    copy = _plain(record, (None, name))
    assert isinstance(copy, dict)
    return copy


def encode_record(record: dict[str, Any]) -> bytes:
    """The bytes of a record that `copy_record` made. Without an indent, which would take twice as long."""
    return json.dumps(record).encode() + b"\n"


def decode_record(data: bytes) -> dict[str, Any]:
    """Reads a record."""
    record = json.loads(data)
    assert isinstance(record, dict)  # its digest is right
    return record


def _plain(value: Any, place: _Place) -> Any:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise RecordError(f"{_text(place)} has the key {key!r}, which is no string")
        return {key: item if type(item) in _SCALARS else _plain(item, (place, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _SCALARS else _plain(item, (place, number)) for number, item in enumerate(value)]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of NumPy's
        value = value.item()
    if not isinstance(value, _SCALARS):
        raise RecordError(f"{_text(place)} is of type {type(value).__name__}")
    return value


def _text(place: _Place) -> str:
    holder, key = place
    return str(key) if holder is None else f"{_text(holder)}[{key!r}]"
