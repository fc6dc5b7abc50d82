"""One task's process, alone in its session and process group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from tfdist.launching.watchdog import kill_group

_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>

Output = int | IO[bytes]


class TaskProcess:
    """A started task. It dies with the process that started it, on Linux (and, through `JobGuard`, elsewhere).

    To be made by the main thread: Linux ties the death signal to the thread that started the process.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], stdout: Output, stderr: Output):
        self._popen = subprocess.Popen(
            list(command),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=_build_death_signal_request(),  # noqa: PLW1509 - see the class: the launcher has one thread
            bufsize=0,
        )

    @property
    def pid(self) -> int:
        """The number of the process and of its process group."""
        return self._popen.pid

    @property
    def stdout(self) -> IO[bytes] | None:
        """The reading end of its standard output, if that is a pipe."""
        return self._popen.stdout

    @property
    def stderr(self) -> IO[bytes] | None:
        """The reading end of its standard error, if that is a pipe."""
        return self._popen.stderr

    def poll(self) -> int | None:
        """Its exit status (negative: the signal that killed it), None while it runs.

        When it has ended, what is left of its process group is killed; the ended process is reaped only after that, so
        that the group's number cannot have become another's.
        """
        if self._popen.returncode is None:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                return None
            kill_group(self.pid)
            self._popen.wait()
        return self._popen.returncode

    def wait(self) -> int:
        """Waits for its end and returns its exit status, with the care of `poll`."""
        if self._popen.returncode is None:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        status = self.poll()
        assert status is not None
        return status

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process and all others of its group."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


def _build_death_signal_request() -> Callable[[], None] | None:
    """Builds what the new process does before it becomes the task: ask Linux to kill it when its parent dies."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def request() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died before the request
            os._exit(1)

    return request
