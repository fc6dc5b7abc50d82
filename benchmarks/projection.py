"""On paper: what jobs that nobody has run would take, by the model of `step_time.py`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.step_time import (
    Line,
    Network,
    StepCosts,
    pairwise_all_reduce_ms,
    ring_all_reduce_ms,
    small_exchange_ms,
)
from benchmarks.tables import format_ms
from benchmarks.workloads import WORKLOADS

__all__ = ["report_projection"]

WORKERS = (8, 64, 1024)
GIGABITS = (1, 10, 100)
#: Assumed, not measured: between two processes on hosts of one data centre, over TCP.
LATENCY_MS = 0.03
_ALGORITHMS = {"ring": ring_all_reduce_ms, "pairwise": pairwise_all_reduce_ms}


def report_projection(
    costs_of: Mapping[str, StepCosts],
    host_ms_per_byte: float | None,
    host_ms_per_message: float | None,
    *,
    overhead: Line,
) -> list[str]:
    """The lines of the report: weak scaling on networks.

    Args:
        costs_of: By model; those whose step of one worker was measured are shown.
        host_ms_per_byte: See `Network`; without it there is no table.
        host_ms_per_message: See `Network`.
        overhead: Of a step of several workers, over the bytes of its gradients.
    """
    if host_ms_per_byte is None or host_ms_per_message is None:
        return []
    gigabits_of_host = 8e-6 / host_ms_per_byte
    lines = [
        "",
        "### On paper: 8, 64 and 1,024 workers",
        "",
        "Nobody has run this. Weak scaling, by the same model, with these assumptions:",
        "",
        "- Each worker is a host of one core like those here, with a link of its own in a network that never blocks.",
        f"- A message is at the other process after {LATENCY_MS * 1000:.0f} us: assumed, the rest is measured here.",
        f"- A host needs {host_ms_per_byte * 2**20:.2f} ms for a MB that it sends, one that it receives, and their sum "
        "(the sockets of the `tcp` transport between two workers here). Where the network is faster, the limit is "
        f"{gigabits_of_host:.1f} Gbit/s. It needs {host_ms_per_message * 1000:.0f} us for a message to and one from "
        "another worker.",
        "- The overhead of a step is that of the cases above.",
        "- Nothing overlaps: the exchange begins when all gradients are there, of float32. Those of the transformer's "
        "embedding are rows that all workers gather (by pairs in both columns).",
        "- Workers read their own rows (tf.data's FILE policy, or dataset functions), for which their numbers of rows "
        "are one more small exchange. By default each reads the global batch: `reading` is what that adds, in ms.",
        "- No stragglers, no lost packets, no congestion where many send to one. Above 500 workers the usual limit on "
        "open files is raised.",
        "- `pairwise` is what the `tcp` transport does at these sizes: two steps, each with a message to every other "
        "worker. `ring`: 2 (n - 1) steps that follow each other, which the project does not have.",
        "",
        "Milliseconds, and in brackets the efficiency: the step of one worker beside it.",
        "",
    ]
    columns = [f"{gigabits} Gbit/s, {name}" for gigabits in GIGABITS for name in _ALGORITHMS]
    lines += [f"| model | workers | {' | '.join(columns)} | reading |", "|---" * (len(columns) + 3) + "|"]
    for model, costs in costs_of.items():
        rows = WORKLOADS[model].batch
        alone = costs.compute_ms.get((rows, 1))
        if alone is None:
            continue
        for workers in WORKERS:
            cells = []
            for gigabits in GIGABITS:
                network = Network(LATENCY_MS, 8e-6 / gigabits, host_ms_per_byte, host_ms_per_message)
                for all_reduce in _ALGORITHMS.values():
                    exchange = all_reduce(network, workers, costs.exchanged_bytes(workers))
                    step = alone + overhead.at(costs.gradient_bytes) + exchange + small_exchange_ms(network, workers)
                    cells.append(f"{format_ms(step)} ({alone / step:.0%})")
            reading = format_ms(costs.read_ms.beta * (workers - 1) * rows)
            lines.append(f"| {model} | {workers:,} | {' | '.join(cells)} | {reading} |")
    return lines
