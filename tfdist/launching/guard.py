"""`JobGuard`: what guarantees that a job leaves no process and no temporary file."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from tfdist.cluster.job_environment import JOB_ID
from tfdist.launching import watchdog
from tfdist.launching.process import TaskProcess


class JobGuard:
    """A context in which the processes of a job live.

    On leaving it, by whatever way, every process of the job is killed and its temporary directory is removed. If the
    launcher is killed, a watchdog process does both. A process that has left its task's process group is found by its
    environment (on Linux).

    Attributes:
        job_id: Unique for this job.
        secret: With what the tasks of the job prove to each other that they are of it.
        directory: The job's temporary directory, for its reports.
    """

    def __init__(self, secret: str | None = None) -> None:
        """Makes the directory and starts the watchdog.

        Args:
            secret: Of a job of several nodes; drawn at random by default.
        """
        self.job_id = secrets.token_hex(8)
        self.secret = secret or secrets.token_hex(32)
        self.directory = Path(tempfile.mkdtemp(prefix="tfdist-"))
        self._processes: dict[int, TaskProcess] = {}
        env = {name: value for name, value in os.environ.items() if name != JOB_ID}  # of an outer job, which may die
        try:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, self.job_id, str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                env=env,
                start_new_session=True,
            )
        except OSError:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def __enter__(self) -> JobGuard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill_all()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._tell("done")
        with contextlib.suppress(OSError):
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
        self._watchdog.wait()

    def add(self, process: TaskProcess) -> None:
        """Takes charge of a process that has just been started."""
        self._processes[process.pid] = process
        self._tell(f"add {process.pid}")

    def remove(self, process: TaskProcess) -> None:
        """Forgets a process that has ended and its group with it, as its number may be given to another program."""
        self._processes.pop(process.pid, None)
        self._tell(f"remove {process.pid}")

    def kill_all(self) -> None:
        """Kills every process of the job, those that left their task's process group too, and reaps the tasks."""
        for process in self._processes.values():
            process.send(signal.SIGKILL)
        watchdog.kill_job(self.job_id, set())
        for process in self._processes.values():
            process.wait()

    def _tell(self, command: str) -> None:
        with contextlib.suppress(OSError):  # someone killed the watchdog: the job still ends by the usual ways
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.write(command + "\n")
            self._watchdog.stdin.flush()
