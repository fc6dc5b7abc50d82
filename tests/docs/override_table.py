"""The table of overrides in docs/design/keras-compatibility.md. As a script, writes it anew.

python tests/docs/override_table.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design" / "keras-compatibility.md"
_BETWEEN_MARKS = re.compile(r"(?<=<!-- overrides: begin -->\n).*(?=<!-- overrides: end -->)", re.DOTALL)


def render(rows: Sequence[tuple[str, str, str]]) -> str:
    """The table, of rows with the label of an override, what it answers, and what it was verified on."""
    header = "| overridden | what stock Keras does | verified on |\n|---|---|---|\n"
    return header + "".join(f"| `{label}` | {answers} | {verified_on} |\n" for label, answers, verified_on in rows)


def read() -> str:
    """The table as it stands on the page."""
    match = _BETWEEN_MARKS.search(PAGE.read_text())
    assert match, f"{PAGE} has lost its marks <!-- overrides: begin --> and <!-- overrides: end -->"
    return match[0]


def write(rows: Sequence[tuple[str, str, str]]) -> None:
    """Puts the table on the page."""
    PAGE.write_text(_BETWEEN_MARKS.sub(lambda _: render(rows), PAGE.read_text()))


def current_rows() -> list[tuple[str, str, str]]:
    """The rows that the code makes. Loads TensorFlow."""
    from tfdist.keras_compat.installation import all_overrides

    return [(override.label, override.answers, override.verified_on) for override in all_overrides()]


if __name__ == "__main__":
    write(current_rows())
