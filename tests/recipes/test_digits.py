"""Every way of starting `recipes/digits.py` learns to read, ends well, and leaves nothing behind."""

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

RECIPE = str(Path(__file__).resolve().parents[2] / "recipes" / "digits.py")
PYTHON = [sys.executable]
RUN = [sys.executable, "-m", "tfdist", "run"]
TIME_LIMIT_S = 240
#: `make campaign` tries more.
SEEDS = [int(seed) for seed in os.environ.get("TFDIST_TEST_SEEDS", "0").split()]

#: How it is started, and the launcher's prefix of what the chief or coordinator prints.
STARTS = {
    "alone": ([*PYTHON, RECIPE], ""),
    "mirrored": ([*PYTHON, RECIPE, "--strategy=mirrored", "--logical_devices=2"], ""),
    "2 workers": ([*RUN, "--workers", "2", RECIPE], "[worker 0] "),
    "4 workers": ([*RUN, "--workers", "4", RECIPE], "[worker 0] "),
    "2 workers, 1 parameter server": ([*RUN, "--workers", "2", "--ps", "1", RECIPE], "[chief] "),
    "2 workers, 2 parameter servers": ([*RUN, "--workers", "2", "--ps", "2", RECIPE], "[chief] "),
}


def processes_with(marker: str) -> list[str]:
    """The command lines of all processes whose environment holds `marker`."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if marker.encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it has ended, or is not ours
                continue
    return found


def start(command: list[str], directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with a temporary directory of its own, in which AutoGraph, say, would leave compiled files."""
    temporary = directory / "tmp"
    temporary.mkdir()
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        command,
        cwd=directory,
        env={**inherited, "TMPDIR": str(temporary), "TF_CPP_MIN_LOG_LEVEL": "2", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )


def describe(result: subprocess.CompletedProcess[str]) -> str:
    return f"status {result.returncode}\n--- stdout\n{result.stdout}\n--- stderr\n{result.stderr[-6000:]}"


@pytest.mark.timeout(TIME_LIMIT_S + 30)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STARTS)
def test_reads_digits_and_leaves_nothing(name: str, seed: int, tmp_path: Path) -> None:
    command, prefix = STARTS[name]
    marker = uuid.uuid4().hex

    result = start([*command, f"--seed={seed}"], tmp_path, TFDIST_TEST_MARKER=marker)

    assert result.returncode == 0, describe(result)
    assert processes_with(f"TFDIST_TEST_MARKER={marker}") == []
    assert [str(path) for path in tmp_path.rglob("*")] == [str(tmp_path / "tmp")], "files were left behind"
    lines = [line for line in result.stdout.splitlines() if "test_accuracy" in line]
    assert len(lines) == 1, describe(result)
    match = re.fullmatch(re.escape(prefix) + r"test_accuracy=([01]\.\d{4})", lines[0])
    assert match, lines
    assert float(match[1]) >= 0.95, describe(result)


def test_the_scan_for_processes_sees_a_process(tmp_path: Path) -> None:
    marker = f"TFDIST_TEST_MARKER={uuid.uuid4().hex}"
    name, _, value = marker.partition("=")
    sleeper = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        sleeper, env={**os.environ, name: value}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it runs: its environment is in /proc
        assert len(processes_with(marker)) == 1
        process.kill()
    assert processes_with(marker) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy=parameter_server"], "Start it with `tfdist run --workers N --ps M`"),
        (["--strategy=horovod"], "value should be one of"),
        (["--epochs=0"], "0 is not a positive integer"),
        (["stray"], "Unexpected arguments: stray"),
    ],
)
def test_refuses_what_cannot_be_run(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = start([*PYTHON, RECIPE, *arguments], tmp_path)

    assert result.returncode not in (0, None), describe(result)
    assert message in result.stdout + result.stderr, describe(result)
