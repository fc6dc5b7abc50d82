"""Runs `tfdist doctor` as the real processes of a small cluster on this machine, each with its own misconfiguration."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# A process that another thread starts has, until it is exec'd, copies of this one's sockets, and so of its ports.
_STARTING = threading.Lock()
SECRET = "s" * 32
LIMIT_S = 60  # of a test, far above the doctor's own
_GO_ON = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


@dataclass
class Node:
    """One node: what it is told, and in what environment."""

    workers: list[str]
    index: int = 0
    arguments: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    path: Path | None = None  # what comes first in its PYTHONPATH
    prefix: tuple[str, ...] = ()  # the command that runs the doctor
    before: str = ""  # Python statements, run in the process before the doctor starts

    def start(self) -> subprocess.Popen[str]:
        described = {"cluster": {"worker": self.workers}, "task": {"type": "worker", "index": self.index}}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TF_CONFIG", "TFDIST_"))}
        paths = [str(path) for path in (self.path, ROOT, os.environ.get("PYTHONPATH")) if path]
        return subprocess.Popen(
            [
                *self.prefix,
                *([sys.executable, "-c", f"{self.before}\n{_GO_ON}"] if self.before else []),
                *(sys.executable, "-m", "tfdist", "doctor", "--json", *self.arguments),
            ],
            env={
                **inherited,
                "PYTHONPATH": os.pathsep.join(paths),
                "TF_CONFIG": json.dumps(described),
                "TFDIST_JOB_SECRET": SECRET,
                **self.env,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


@dataclass(frozen=True)
class Answer:
    """What the doctor on one node said."""

    status: int
    diagnosis: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, str]]:
        return self.diagnosis["findings"]


def run_nodes(build: Callable[[], list[Node]]) -> list[Answer]:
    """Makes nodes, and runs the doctor on all of them at once, to their ends."""
    with _STARTING:
        running = [node.start() for node in build()]
    answers = []
    try:
        for process in running:
            stdout, stderr = process.communicate(timeout=LIMIT_S)
            assert stdout, stderr
            assert "Traceback" not in stderr
            answers.append(Answer(process.returncode, json.loads(stdout)))
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return answers
