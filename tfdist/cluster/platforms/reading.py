"""What all platforms have in common: numbers in the environment, and ports that nobody has to agree on. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.errors import ClusterConfigError, describe_problem

__all__ = ["BASE_PORT", "Found", "base_port", "need", "read_number", "workers_found"]

#: The first port of a host's tasks, where a platform tells no ports. Set by users, the same for all tasks.
BASE_PORT = "TFDIST_BASE_PORT"
_FIRST_PORT, _NUM_PORTS = 20_000, 10_000  # below the ports that systems give out by themselves


@dataclass(frozen=True)
class Found:
    """What a platform says.

    Attributes:
        evidence: The variables by which it was recognised, in words.
        rank: The number of this process among all.
        size: How many there are.
        cluster: Addresses by task type.
        task_type: This process's.
        task_id: This process's.
    """

    evidence: str
    rank: int
    size: int
    cluster: Mapping[str, Sequence[str]]
    task_type: str
    task_id: int


def workers_found(evidence: str, rank: int, addresses: Sequence[str]) -> Found:
    """All processes are workers, in the order of ranks."""
    return Found(evidence, rank, len(addresses), {"worker": list(addresses)}, "worker", rank)


def read_number(env: Mapping[str, str], name: str, platform: str) -> int:
    """The number, from 0, that a variable holds.

    Raises:
        ClusterConfigError: It is missing, or no number.
    """
    text = env.get(name)
    if text is None:
        raise need(platform, [name], env)
    if not text.strip().isdecimal():
        raise ClusterConfigError(
            describe_problem(
                f"{platform} has a variable that is no number",
                received=f"{name}={text!r} (from the environment)",
                expected="a whole number, at least 0",
                fix="Set it to what the platform sets, or set TF_CONFIG, which goes first.",
            )
        )
    return int(text)


def need(platform: str, missing: Sequence[str], env: Mapping[str, str]) -> ClusterConfigError:
    """The error of an environment that has a part of what a platform sets."""
    prefixes = {name.split("_")[0] for name in missing}
    there = sorted(name for name in env if name.split("_")[0] in prefixes)
    shown = ", ".join(there[:8]) + (" and more" if len(there) > 8 else "")
    return ClusterConfigError(
        describe_problem(
            f"This process seems to run under {platform}, but the description of its cluster is incomplete",
            received=f"{shown or 'no variable of the kind'}; without {', '.join(missing)} (from the environment)",
            expected=f"all of {platform}'s variables, or none",
            fix="Start the processes with the platform's launcher, unset what is left over of it, or set TF_CONFIG.",
        )
    )


def base_port(env: Mapping[str, str], job: str, num_local: int) -> int:
    """The first port of each host's tasks: the user's, else one that follows from the job's name.

    Args:
        env: The environment.
        job: What tells this job from others on the same hosts.
        num_local: How many ports a host needs.
    """
    if BASE_PORT in env:
        port = read_number(env, BASE_PORT, "tfdist")
        if not 1 <= port <= 65_536 - num_local:
            raise ClusterConfigError(
                describe_problem(
                    "The base port leaves no room for the ports of a host's tasks",
                    received=f"{BASE_PORT}={port} (from the environment), {num_local} tasks a host",
                    expected=f"a number from 1 to {65_536 - num_local}",
                    fix=f"Set {BASE_PORT} to a smaller number, the same for all tasks.",
                )
            )
        return port
    slots = max(1, _NUM_PORTS // num_local)
    return _FIRST_PORT + zlib.crc32(job.encode()) % slots * num_local
