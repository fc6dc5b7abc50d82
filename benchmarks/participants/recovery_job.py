"""From the kill of one of three workers to the end of the next step: survivors that go on, and jobs started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.place import Place

_WORKERS, _KILL_AT = 3, 30
_LIMIT_S = 180.0
_SCRIPTS = Path(__file__).with_name("recovery_scripts")


def measure(place: Place, kind: str) -> dict[str, Any]:
    """Runs one job in which worker 1 kills itself once.

    Args:
        place: Where to leave files.
        kind: `elastic`, `restart` or `torchrun`.
    """
    directory = place.directory / kind
    directory.mkdir(parents=True)
    script = str(_SCRIPTS / ("train_torch.py" if kind == "torchrun" else "train_tfdist.py"))
    command = {
        "elastic": ["-m", "tfdist", "run", "--workers", f"2:{_WORKERS}"],
        "restart": ["-m", "tfdist", "run", "--workers", str(_WORKERS), "--max-restarts", "3"],
        "torchrun": ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_WORKERS}", "--max-restarts=5"],
    }[kind]
    root = str(Path(__file__).resolve().parents[2])
    env = {name: value for name, value in os.environ.items() if not name.startswith("TFDIST_")}
    env |= {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}
    process = subprocess.Popen(
        [sys.executable, *command, script, str(directory), str(_KILL_AT)],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{kind} had not ended after {_LIMIT_S:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status:
        raise RuntimeError(f"{kind} ended with status {status}")
    return {"series": {"": {"wall": [_seconds_to_next_step(directory, kind) * 1000]}}}


def _seconds_to_next_step(directory: Path, kind: str) -> float:
    killed = json.loads((directory / "killed").read_text())
    steps = [json.loads(line) for path in directory.glob("steps *") for line in path.read_text().splitlines()]
    before = {each["pid"] for each in steps if each["at"] <= killed["at"]}
    # Started anew, a job is back when a new process has made a step; survivors are when they have made the next one.
    after = [
        each["at"]
        for each in steps
        if (each["step"] > killed["step"] if kind == "elastic" else each["pid"] not in before)
    ]
    return float(min(after) - killed["at"])


def note_step(directory: str, kill_at: int, rank: int, step: int) -> None:
    """What the scripts call at the end of each step. Worker 1 kills itself at the end of one, once."""
    now = {"pid": os.getpid(), "step": step, "at": time.monotonic()}
    with open(f"{directory}/steps {os.getpid()}", "a", encoding="ascii") as file:
        file.write(json.dumps(now) + "\n")
    marker = Path(directory, "killed")
    if rank == 1 and step == kill_at and not marker.exists():
        marker.write_text(json.dumps({"step": step, "at": time.monotonic()}))
        os.kill(os.getpid(), signal.SIGKILL)
