"""The reference has every public name, and the examples of the public docstrings run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: In a process of its own, as public names load TensorFlow. Prints the public modules, names without a docstring, and
#: how many examples were tried and failed.
_ASK = """
import doctest, importlib, inspect, json
modules = {name: importlib.import_module(name) for name in ("tfdist", "tfdist.testing")}
for name in modules["tfdist"].__all__:
    value = getattr(modules["tfdist"], name)
    if inspect.ismodule(value):
        modules[value.__name__] = value
finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
bare = []
for module in modules.values():
    for name in module.__all__:
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not value.__doc__:
            bare.append(f"{module.__name__}.{name}")
        source = inspect.getmodule(value)
        for test in finder.find(value, name, module=source, globs={**vars(source), "tfdist": modules["tfdist"]}):
            runner.run(test)
print("ANSWER" + json.dumps([sorted(modules), bare, runner.tries, runner.failures]))
"""


@pytest.fixture(scope="module")
def answer() -> tuple[list[str], list[str], int, int, str]:
    result = subprocess.run(
        [sys.executable, "-c", _ASK],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert result.returncode == 0, result.stderr
    said, _, values = result.stdout.partition("ANSWER")
    modules, bare, tried, failed = json.loads(values)
    return modules, bare, tried, failed, said


def test_reference_has_every_public_module(answer: tuple[list[str], list[str], int, int, str]) -> None:
    listed = re.findall(r"^\.\. automodule:: (\S+)$", (ROOT / "docs" / "api.rst").read_text(), re.MULTILINE)
    assert sorted(listed) == answer[0]


def test_public_names_have_docstrings(answer: tuple[list[str], list[str], int, int, str]) -> None:
    assert answer[1] == []


def test_examples_of_docstrings(answer: tuple[list[str], list[str], int, int, str]) -> None:
    _, _, tried, failed, said = answer
    assert tried >= 10
    assert failed == 0, said
