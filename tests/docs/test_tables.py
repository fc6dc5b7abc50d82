"""Tables of the documentation say what the code says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import override_table
import pytest

ROOT = Path(__file__).resolve().parents[2]

_ASK = """
import json, sys
sys.path.insert(0, {directory!r})
import override_table
from tfdist.keras_compat.installation import VERIFIED
print("ANSWER" + json.dumps([override_table.current_rows(), VERIFIED]))
"""


@pytest.fixture(scope="module")
def facts() -> tuple[list[tuple[str, str, str]], dict[str, list[list[int]]]]:
    """The overrides and the verified versions, from a process of its own, as only that one needs TensorFlow."""
    result = subprocess.run(
        [sys.executable, "-c", _ASK.format(directory=str(Path(__file__).parent))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    rows, verified = json.loads(result.stdout.partition("ANSWER")[2])
    return [tuple(row) for row in rows], verified


def test_overrides(facts: tuple[list[tuple[str, str, str]], dict[str, list[list[int]]]]) -> None:
    rows, _ = facts
    assert rows
    assert override_table.read() == override_table.render(rows), "run: python tests/docs/override_table.py"


def test_labels_of_overrides_are_unique(facts: tuple[list[tuple[str, str, str]], dict[str, list[list[int]]]]) -> None:
    labels = [label for label, *_ in facts[0]]
    assert len(set(labels)) == len(labels)


def test_supported_versions(facts: tuple[list[tuple[str, str, str]], dict[str, list[list[int]]]]) -> None:
    page = (ROOT / "docs" / "design" / "supported-versions.md").read_text()
    readme = (ROOT / "README.md").read_text()
    pyproject = (ROOT / "pyproject.toml").read_text()
    for package, (oldest, newest) in facts[1].items():
        first, last = (".".join(map(str, version)) for version in (oldest, newest))
        assert f"| {package} | {first} | {last} |" in page
        assert re.search(rf"{package} {re.escape(first)} to {re.escape(last)}", readme, re.IGNORECASE)
        assert f'"{package}>={first}"' in pyproject


def test_the_old_end_of_make_is_the_oldest_supported(
    facts: tuple[list[tuple[str, str, str]], dict[str, list[list[int]]]],
) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for package, (oldest, _) in facts[1].items():
        assert f"'{package}=={'.'.join(map(str, oldest))}.*'" in makefile
