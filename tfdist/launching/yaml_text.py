"""Writes dictionaries, lists, texts and numbers as YAML, of which JSON's texts are a part. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["format_yaml"]

#: What YAML 1.1 takes for something else than a text.
_NO_TEXTS = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")


def format_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """The documents, one after the other. Texts are in double quotes, so that none is taken for something else."""
    return "---\n".join("\n".join(_lines(document) or ["{}"]) + "\n" for document in documents)


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [line for key, each in value.items() for line in _entry(f"{_key(key)}:", each)]
    return [line for each in value for line in _item(each)]


def _entry(key: str, value: Any) -> list[str]:
    if isinstance(value, (Mapping, list, tuple)) and value:
        return [key, *(f"  {line}" for line in _lines(value))]
    return [f"{key} {_scalar(value)}"]


def _item(value: Any) -> list[str]:
    if isinstance(value, (Mapping, list, tuple)) and value:
        first, *rest = _lines(value)
        return [f"- {first}", *(f"  {line}" for line in rest)]
    return [f"- {_scalar(value)}"]


def _scalar(value: Any) -> str:
    return _quote(value) if isinstance(value, str) else json.dumps(list(value) if isinstance(value, tuple) else value)


def _quote(text: str) -> str:
    """In double quotes. JSON writes 😀 as two halves, which YAML does not put together, and leaves DEL as it is."""
    return "".join(c if " " <= c <= "~" else _escape(c) for c in json.dumps(text, ensure_ascii=False))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _key(key: str) -> str:
    plain = key.replace("_", "").replace("-", "").replace(".", "").replace("/", "")
    is_word = plain.isascii() and plain.isalpha() and key[0].isalpha() and key.lower() not in _NO_TEXTS
    return key if is_word else _quote(key)
