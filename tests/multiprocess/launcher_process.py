"""Runs `tfdist run` as a real process, and finds what it leaves behind."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

LIMIT_S = 60


class Launcher:
    """One `tfdist run` of a script given as text. Its temporary files go to a directory of its own."""

    def __init__(self, directory: Path, script: str, *options: str, args=(), env=None, prefix=()):
        self.marker = f"MARKER_{secrets.token_hex(8)}"
        self.temporary = directory / "temporary"
        self.temporary.mkdir()
        self.script = directory / "script.py"
        self.script.write_text(textwrap.dedent(script))
        program = [] if "-m" in options else [str(self.script)]
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tfdist", "run", *options, *program, *args],
            env={**os.environ, "TMPDIR": str(self.temporary), "TEST_MARKER": self.marker, **(env or {})},
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.find_processes():
            kill(pid)
        self.process.kill()
        self.process.communicate()

    def finish(self):
        """Waits for its end; returns the status and both outputs, and checks that nothing is left."""
        stdout, stderr = self.process.communicate(timeout=LIMIT_S)
        self.check_nothing_left()
        return self.process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace")

    def find_processes(self):
        """The living processes that this launcher or its tasks started, itself included, by their environment."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environ = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if self.marker.encode() in environ:
                    found.append(int(entry.name))
        return found

    def check_nothing_left(self):
        wait_for(lambda: not self.find_processes(), lambda: f"processes left: {self.find_processes()}")
        wait_for(lambda: not any(self.temporary.iterdir()), lambda: f"left: {list(self.temporary.iterdir())}")


def wait_for(condition, describe):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.01)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
