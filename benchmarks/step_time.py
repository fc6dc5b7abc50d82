"""A model of the time of a training step, from quantities that are measured one by one. Pure.

A step of `n` workers, of which `k = max(1, n / cores)` share a core, takes

    k * (compute + read + overhead) + exchange

- `compute`: a step of one worker that trains alone on as many rows, while as many cores are busy as in the job;
- `read`: what reading the global batch takes beyond reading the worker's own rows, a straight line over the rows;
- `overhead`: what a step costs for being one of several workers' beyond the exchange of bytes: the call from TensorFlow
  into Python and back, and, for large models below 0, memory that the transport keeps and a lone worker takes from the
  system anew in every step. A straight line over the bytes of the gradients, from the cases that calibrate the model;
- `exchange`: `alpha + beta * bytes`, for each number of workers that was measured, sharing of cores included.

Costs of messages are straight lines, as by Hockney (1994, "The communication challenge for MPP: Intel Paragon and Meiko
CS-2", Parallel Computing 20). Costs of an all-reduce on a network are those of Thakur, Rabenseifner and Gropp (2005,
"Optimization of Collective Communication Operations in MPICH", section 4.5).

Times are in milliseconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "Line",
    "Network",
    "StepCosts",
    "calibrate_overhead",
    "fit_line",
    "fit_overhead",
    "pairwise_all_reduce_ms",
    "predict_step_ms",
    "relative_error",
    "ring_all_reduce_ms",
    "small_exchange_ms",
]


@dataclass(frozen=True)
class Line:
    """A cost of `alpha + beta * size`."""

    alpha: float
    beta: float

    def at(self, size: float) -> float:
        return self.alpha + self.beta * size


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """Fits a line with the smallest sum of squared *relative* errors, so that small sizes count as much as large ones.

    Neither coefficient becomes negative: a cost that the points do not show is 0.

    Args:
        points: Sizes and times, at least one; times above 0. A single point, or equal sizes, give a constant.
    """
    # With u = 1 / time and v = size / time: alpha u + beta v is to be 1.
    uu = sum(1 / t**2 for _, t in points)
    uv = sum(s / t**2 for s, t in points)
    vv = sum((s / t) ** 2 for s, t in points)
    u, v = sum(1 / t for _, t in points), sum(s / t for s, t in points)
    determinant = uu * vv - uv**2
    if determinant <= 1e-12 * uu * vv:  # all sizes are equal
        return Line(u / uu, 0.0)
    alpha, beta = (u * vv - v * uv) / determinant, (v * uu - u * uv) / determinant
    if alpha < 0:
        return Line(0.0, v / vv)
    if beta < 0:
        return Line(u / uu, 0.0)
    return Line(alpha, beta)


def relative_error(predicted: float, measured: float) -> float:
    """Positive where the prediction is too high."""
    return (predicted - measured) / measured


@dataclass(frozen=True)
class StepCosts:
    """What was measured of one model.

    Attributes:
        cores: How many the workers share.
        compute_ms: A step of a worker that trains alone, by its rows and by how many cores were busy.
        read_ms: Of reading one global batch, over its rows.
        exchange_ms: Of an all-reduce over bytes, by the number of workers.
        gradient_bytes: Of dense gradients, which a step sums.
        gathered_bytes: Of a worker's rows of sparse gradients, which all workers gather.
        overhead_ms: See the head of this file.
    """

    cores: int
    compute_ms: Mapping[tuple[int, int], float]
    read_ms: Line
    exchange_ms: Mapping[int, Line]
    gradient_bytes: int
    gathered_bytes: int = 0
    overhead_ms: float = 0.0

    def exchanged_bytes(self, workers: int) -> float:
        """The size of a sum in which a worker sends as much as in a step.

        A worker sends 2 (n - 1) / n of what is summed, and its own rows to n - 1 others.
        """
        return self.gradient_bytes + self.gathered_bytes * workers / 2


def predict_step_ms(costs: StepCosts, workers: int, rows: int) -> float:
    """The time of a step of `workers` workers with `rows` rows each.

    Raises:
        KeyError: When its compute time or exchange was not measured.
    """
    if workers == 1:
        return costs.compute_ms[rows, 1]
    sharing = max(1.0, workers / costs.cores)
    compute = costs.compute_ms[rows, min(workers, costs.cores)]
    read = costs.read_ms.beta * (workers - 1) * rows
    exchange = costs.exchange_ms[workers].at(costs.exchanged_bytes(workers))
    return sharing * (compute + read + costs.overhead_ms) + exchange


def calibrate_overhead(costs: StepCosts, workers: int, rows: int, measured_ms: float) -> float:
    """The overhead with which the model predicts a measured step exactly; below 0 if it predicts too much without any.

    Args:
        costs: `overhead_ms` must be 0.
        workers: Above 1.
        rows: Of each worker.
        measured_ms: The step.
    """
    sharing = max(1.0, workers / costs.cores)
    return (measured_ms - predict_step_ms(costs, workers, rows)) / sharing


def fit_overhead(points: Sequence[tuple[float, float]]) -> Line:
    """Fits a line with the smallest sum of squared errors to bytes and overheads of models; one model: a constant."""
    mean_size = sum(size for size, _ in points) / len(points)
    mean = sum(ms for _, ms in points) / len(points)
    spread = sum((size - mean_size) ** 2 for size, _ in points)
    slope = sum((size - mean_size) * (ms - mean) for size, ms in points) / spread if spread else 0.0
    return Line(mean - slope * mean_size, slope)


@dataclass(frozen=True)
class Network:
    """A network between hosts of one worker each.

    Attributes:
        latency_ms: Until a message's first byte is at the other process, one way.
        wire_ms_per_byte: Of a link, each way at the same time.
        host_ms_per_byte: Processor time of a host for a byte that it sends, one that it receives, and their sum.
        host_ms_per_message: Processor time of a host for a message that it sends and one that it receives.
    """

    latency_ms: float
    wire_ms_per_byte: float
    host_ms_per_byte: float
    host_ms_per_message: float

    def _moving_ms(self, workers: int, size: float) -> float:
        """Of 2 (n - 1) / n of the bytes. The wire and the host work at the same time; the slower one counts."""
        return 2 * (workers - 1) / workers * size * max(self.wire_ms_per_byte, self.host_ms_per_byte)


def ring_all_reduce_ms(network: Network, workers: int, size: float) -> float:
    """A ring: 2 (n - 1) steps that follow each other, each with a message (Thakur et al., section 4.5)."""
    a_step = network.latency_ms + network.host_ms_per_message
    return 2 * (workers - 1) * a_step + network._moving_ms(workers, size)


def pairwise_all_reduce_ms(network: Network, workers: int, size: float) -> float:
    """What the transport tcp does with large sums: two steps, in each a message to every other member."""
    a_step = network.latency_ms + (workers - 1) * network.host_ms_per_message
    return 2 * a_step + network._moving_ms(workers, size)


def small_exchange_ms(network: Network, workers: int) -> float:
    """What the transport tcp does with a few bytes: one message to every other member."""
    return network.latency_ms + (workers - 1) * network.host_ms_per_message
