"""The messages that the page on troubleshooting quotes are those of the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
#: A section of the page whose messages are not tfdist's.
OF_OTHERS = "Stock Keras and TensorFlow"
#: Stands for what differs from case to case, on the page and below.
GAP = "..."

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_HEADING = re.compile(r"^### `(.+)`$", re.MULTILINE)


def quoted_messages(page: str) -> list[str]:
    parts = _SECTION.split(page)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert sections.pop(OF_OTHERS)
    headings = [line for text in sections.values() for line in text.splitlines() if line.startswith("### ")]
    quoted = [message for text in sections.values() for message in _HEADING.findall(text)]
    assert len(quoted) == len(headings), "a heading is no quotation"
    return quoted


def texts_of(source: str) -> set[str]:
    """The string literals of a source, with gaps where an f-string or a log call inserts a value."""
    texts = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values]
            texts.add("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(re.sub(r"%[sdg]", GAP, node.value))
    return texts


@pytest.fixture(scope="module")
def texts() -> set[str]:
    return {text for file in (ROOT / "tfdist").rglob("*.py") for text in texts_of(file.read_text())}


@pytest.mark.parametrize("message", quoted_messages(PAGE.read_text()))
def test_quoted_message_is_in_the_source(message: str, texts: set[str]) -> None:
    assert any(message in text for text in texts)


def test_a_message_that_is_gone_is_found() -> None:
    assert texts_of('f"{a} lost {b!r} of" " it"') >= {"... lost ... of it"}
    assert quoted_messages(f"## {OF_OTHERS}\n### `x`\n## Mine\n### `y ... z`\n") == ["y ... z"]
