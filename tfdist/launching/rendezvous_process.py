"""The rendezvous of an elastic job, as a process beside its tasks."""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tfdist
from tfdist.cluster.job_environment import JOB_ID, JOB_SECRET, parse_network_timeout_s
from tfdist.errors import LaunchError, describe_problem
from tfdist.launching.guard import JobGuard
from tfdist.launching.process import TaskProcess
from tfdist.rendezvous.membership import Rules

__all__ = ["RendezvousProcess"]

_START_LIMIT_S = 30.0


class RendezvousProcess:
    """Started when it is made; ended with the other processes of the job.

    Attributes:
        address: Where it listens.
    """

    def __init__(
        self,
        rules: Rules,
        guard: JobGuard,
        env: Mapping[str, str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        job: str = "",
    ) -> None:
        """Starts it and waits for its address.

        Args:
            rules: The numbers of the job.
            guard: What ends it; has the secret.
            env: The launcher's environment.
            host: The interface to listen on.
            port: The port; 0 lets the system choose.
            job: The job's name, where several nodes take part.

        Raises:
            LaunchError: It does not start.
        """
        options = {
            "rules": dataclasses.asdict(rules),
            "host": host,
            "port": port,
            "job": job,
            "network_limit_s": parse_network_timeout_s(env),
        }
        own = {
            **env,
            JOB_ID: guard.job_id,
            JOB_SECRET: guard.secret,
            # Found as this process has found it: the tasks may have another working directory.
            "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(tfdist.__file__).parents[1]), env.get("PYTHONPATH")))),
        }
        self._process = TaskProcess(
            [sys.executable, "-m", "tfdist.rendezvous", json.dumps(options)], own, subprocess.PIPE, subprocess.DEVNULL
        )
        guard.add(self._process)
        self._unread = b""
        self._said: list[dict[str, Any]] = []
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        until = time.monotonic() + _START_LIMIT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not self._said:
                if self._process.poll() is not None or time.monotonic() >= until:
                    raise LaunchError(
                        describe_problem(
                            "The rendezvous of the job did not start",
                            received=f"status {self._process.poll()}, no address after {_START_LIMIT_S:g} s",
                            expected=f"a process that listens at {host}:{port or 'a free port'}",
                            fix="See that the port is free, and that `python -m tfdist.rendezvous` can be imported.",
                        )
                    )
                selector.select(0.1)
                self._read()
        self.address = str(self._said.pop(0)["address"])

    def rounds(self) -> list[tuple[int, tuple[str, ...]]]:
        """The rounds that were formed since the last call: their numbers and members."""
        self._read()
        said, self._said = self._said, []
        return [(each["round"], tuple(each["members"])) for each in said]

    def _read(self) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                data = os.read(self._process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            self._said += [json.loads(line) for line in lines]

    def close(self) -> None:
        """Closes this end. The guard ends the process."""
        assert self._process.stdout is not None
        self._process.stdout.close()
