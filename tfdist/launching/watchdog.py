"""A separate small process that ends a job's processes if the launcher dies without doing so.

The launcher runs this file by its path, isolated from site-packages (`python -I -S`), so it imports only the standard
library. It reads commands from standard input, a pipe whose other end only the launcher holds; the end of the file
without the command `done` means that the launcher is dead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

JOB_ID_VARIABLE = "TFDIST_JOB_ID"  # the same as in tfdist.cluster.job_environment; a test holds them together
_SCAN_LIMIT_S = 10.0


def kill_group(process_group: int) -> None:
    """Kills a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_group, signal.SIGKILL)


def find_job_processes(job_id: str) -> list[int]:
    """The living processes whose environment names the job, wherever they have moved: Linux only, else empty."""
    marker = f"{JOB_ID_VARIABLE}={job_id}".encode()
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as environ:
                if marker in environ.read().split(b"\0"):
                    found.append(int(entry))
    return found


def kill_job(job_id: str, process_groups: set[int]) -> None:
    """Kills the process groups, then every process that names the job: those that left their group, too."""
    for process_group in process_groups:
        kill_group(process_group)
    deadline = time.monotonic() + _SCAN_LIMIT_S
    while (processes := find_job_processes(job_id)) and time.monotonic() < deadline:
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def main() -> None:
    """Obeys `add GROUP`, `remove GROUP` and `done`, a line each, until the end of standard input."""
    job_id, directory = sys.argv[1:3]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    process_groups: set[int] = set()
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "done":
            return
        (process_groups.add if command == "add" else process_groups.discard)(int(arguments[0]))
    kill_job(job_id, process_groups)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
