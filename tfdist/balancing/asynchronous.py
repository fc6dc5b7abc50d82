"""Who is slow under parameter servers, and which of these holds the most. Pure.

A worker that is free takes the next step, so a slow one makes fewer, and nobody waits for it: what it costs is what it
does not do itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.balancing.rule import Rules

__all__ = ["AsynchronousLoad", "describe_asynchronous_load", "format_asynchronous_load", "slow_workers"]

_FEWEST_STEPS = 10  # before which a worker's median says little
_SMALL_BYTES = 1 << 20  # so little on a server is no matter


@dataclass(frozen=True)
class AsynchronousLoad:
    """What the workers did, and what the parameter servers hold.

    Attributes:
        num_steps: By worker.
        seconds: By worker, the median of a step's time.
        server_bytes: By parameter server, of the variables that every step reads and updates.
    """

    num_steps: Mapping[int, int]
    seconds: Mapping[int, float]
    server_bytes: Sequence[int]


def slow_workers(load: AsynchronousLoad, rules: Rules) -> list[int]:
    """The workers whose steps take longer than those of the others by the tolerance and the floor."""
    enough = [worker for worker, count in load.num_steps.items() if count >= _FEWEST_STEPS]
    return [
        worker
        for worker in sorted(enough)
        if (excess_s := load.seconds[worker] - _others(load, worker)) > rules.tolerance * _others(load, worker)
        and excess_s > rules.floor_s
    ]


def describe_asynchronous_load(load: AsynchronousLoad, rules: Rules) -> list[str]:
    """What there is to say, a sentence or two for each thing; empty when all is well."""
    said = []
    total = sum(load.num_steps.values())
    for worker in slow_workers(load, rules):
        own_s, others_s = load.seconds[worker], _others(load, worker)
        rate = sum(1 / seconds for seconds in load.seconds.values())
        gain = (1 / others_s - 1 / own_s) / rate
        said.append(
            f"worker {worker} is slow: a step takes {1000 * own_s:.1f} ms, {1000 * others_s:.1f} ms on the others. It "
            f"has made {load.num_steps[worker] / total:.0%} of the steps, since whoever is free takes the next one: "
            f"nobody waits for it. Without that the job would make {gain:.0%} more steps."
        )
    held = load.server_bytes
    if len(held) > 1 and max(held) > _SMALL_BYTES and max(held) > (1 + rules.tolerance) * statistics.mean(held):
        most = max(range(len(held)), key=held.__getitem__)
        said.append(
            f"ps {most} holds {held[most] / 1e6:.1f} MB of the {sum(held) / 1e6:.1f} MB that steps read and update, so "
            "most of the traffic is its. Pass a variable_partitioner to parameter_server_strategy, which splits large "
            "variables over all servers."
        )
    return said


def format_asynchronous_load(load: AsynchronousLoad) -> str:
    """A line for each worker and each parameter server."""
    total = max(1, sum(load.num_steps.values()))
    lines = ["worker       steps     share   ms a step"]
    for worker in sorted(load.num_steps):
        count = load.num_steps[worker]
        lines.append(f"worker {worker:<4} {count:6d}  {count / total:8.0%}  {1000 * load.seconds[worker]:10.1f}")
    held = ", ".join(f"ps {index} {size / 1e6:.1f} MB" for index, size in enumerate(load.server_bytes))
    return "\n".join([*lines, f"variables that steps read and update: {held}"])


def _others(load: AsynchronousLoad, worker: int) -> float:
    others = [seconds for other, seconds in load.seconds.items() if other != worker]
    return statistics.median(others) if others else load.seconds[worker]
