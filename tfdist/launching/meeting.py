"""Where the nodes of an elastic job on several machines meet: the first one hosts the rendezvous."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfdist.cluster.address import split_address
from tfdist.cluster.job_environment import JOB_SECRET
from tfdist.errors import ArgumentError, LaunchError, describe_problem
from tfdist.launching.guard import JobGuard
from tfdist.launching.rendezvous_process import RendezvousProcess
from tfdist.rendezvous.membership import Rules

__all__ = ["Meeting", "meet"]

_RETRY_AFTER_S = 0.2
_ASK_LIMIT_S = 2.0


@dataclass(frozen=True)
class Meeting:
    """What all nodes of a job say alike.

    Attributes:
        address: `host:port` of the rendezvous, on one of the nodes.
        job: The job's name: processes of another one are turned away.
        fewest_nodes: How few nodes the job may have.
        most_nodes: How many at most.
    """

    address: str
    job: str
    fewest_nodes: int
    most_nodes: int


@contextlib.contextmanager
def meet(meeting: Meeting, rules: Rules, env: Mapping[str, str], limit_s: float) -> Iterator[RendezvousProcess | None]:
    """Hosts the rendezvous if its address is one of this machine's and nobody does yet; else waits for it.

    Args:
        meeting: Where the nodes meet.
        rules: The numbers of the job.
        env: The launcher's environment, with the job's secret.
        limit_s: How long to wait for another node's, in seconds.

    Yields:
        The rendezvous, if this node hosts it, as long as the block lasts.

    Raises:
        ArgumentError: The environment has no secret.
        LaunchError: Nobody hosts it.
    """
    if not env.get(JOB_SECRET):
        raise ArgumentError(
            describe_problem(
                "The nodes of a job need a secret, by which they know each other",
                received=f"{JOB_SECRET}= (not set in the environment), --rendezvous={meeting.address}",
                expected="the same random text on all nodes",
                fix=f"draw one with `openssl rand -hex 32`, and set {JOB_SECRET} to it on every node",
            )
        )
    host, port = split_address(meeting.address)
    with contextlib.ExitStack() as stack:
        hosted = None
        if _can_host(host, port):
            guard = stack.enter_context(JobGuard(secret=env[JOB_SECRET]))
            hosted = RendezvousProcess(rules, guard, env, host=host, port=port, job=meeting.job)
            stack.callback(hosted.close)
        else:
            _wait_for(meeting.address, host, port, limit_s)
        yield hosted


def _can_host(host: str, port: int) -> bool:
    """Whether this machine can listen there: the address is its own, and the port is free."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(place)
            tried.listen(1)
    except OSError:
        return False
    return True


def _wait_for(address: str, host: str, port: int, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    problem: OSError | None = None
    while time.monotonic() < until:
        try:
            socket.create_connection((host, port), timeout=_ASK_LIMIT_S).close()
        except OSError as error:
            problem = error
            time.sleep(_RETRY_AFTER_S)
        else:
            return
    raise LaunchError(
        describe_problem(
            "Nobody hosts the rendezvous of the job",
            received=f"--rendezvous={address} (from the command line): {problem}, from {os.uname().nodename}",
            expected=f"the launcher of the node with that address, within --start-timeout-s={limit_s:g} seconds",
            fix="start the same command on that node; see that the name resolves and the port can be reached",
        )
    )
