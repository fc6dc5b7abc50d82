"""The code of the documentation runs: its Python, and its commands as far as they are cheap.

A fenced block is `python` (a whole script), `console` (commands after `$ `), or `text`. In the directory where the
commands of a page run, `train.py` is the page's first Python block.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROGRAMS = {"python": [sys.executable], "tfdist": [sys.executable, "-m", "tfdist"]}
TIME_LIMIT_S = 200
#: Commands that start the job of another one once more, with an option that other tests have: in the campaign.
VARIANTS = ("--log-dir", "--max-restarts")

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in _FENCED.findall(page.read_text()) if found == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def all_blocks(language: str) -> list[tuple[Path, str]]:
    return [(page, block) for page in PAGES for block in blocks(page, language)]


def all_commands() -> list[Any]:
    lines = [(page, line) for page, block in all_blocks("console") for line in block.splitlines()]
    commands = [(page, line.removeprefix("$ ")) for page, line in lines if line.startswith("$ ")]
    is_variant = [any(option in command for option in VARIANTS) for _, command in commands]
    marks = [[pytest.mark.campaign] if variant else [] for variant in is_variant]
    return [pytest.param(*each, marks=mark) for each, mark in zip(commands, marks, strict=True)]


def run(command: list[str], directory: Path) -> None:
    result = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    assert result.returncode == 0, f"{shlex.join(command)}\n{result.stdout[-3000:]}\n{result.stderr[-6000:]}"


def test_every_block_has_a_language_that_is_known() -> None:
    found = {(name(page), language) for page in PAGES for language, _ in _FENCED.findall(page.read_text())}
    assert {language for _, language in found} <= {"python", "console", "text"}, found


@pytest.mark.parametrize(("page", "block"), all_blocks("python"), ids=lambda v: name(v) if isinstance(v, Path) else "")
def test_python_runs(page: Path, block: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(block)
    run([sys.executable, str(script)], tmp_path)


@pytest.mark.parametrize(("page", "command"), all_commands(), ids=lambda v: name(v) if isinstance(v, Path) else v)
def test_command_runs(page: Path, command: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(command)
    if program == "make":  # too long to run here; that there is such a target is all
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(arguments) <= set(targets)
        return
    scripts = blocks(page, "python")
    if scripts:
        (tmp_path / "train.py").write_text(scripts[0])
    run([*PROGRAMS[program], *arguments], tmp_path)
