"""The section `scaling`: what was measured, beside what the model of `step_time.py` predicts. Pure.

Nothing is tested on what the model was fitted to: the lines of the exchange are fitted to every other size and tested
on the rest; the overhead of a step comes from one case of the steps for each model, and all others are tested.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.plan import EXCHANGE_CASE
from benchmarks.projection import report_projection
from benchmarks.step_time import (
    Line,
    StepCosts,
    calibrate_overhead,
    fit_line,
    fit_overhead,
    predict_step_ms,
    relative_error,
)
from benchmarks.tables import format_ms
from benchmarks.workloads import WORKLOADS, gathered_bytes, gradient_bytes

__all__ = ["Case", "Exchange", "fit_exchange", "predict_cases", "report_scaling"]

GOAL = 0.15
_Medians = Mapping[tuple[str, str, str], float]


@dataclass(frozen=True)
class Case:
    """One measured step.

    Attributes:
        model: A key of `WORKLOADS`.
        workers: How many.
        rows: Of a worker's batch.
        measured_ms: Median.
        predicted_ms: None where something that the prediction needs has not been measured.
        calibrates: Whether the model was fitted to this case. If not, it is a test of the model.
    """

    model: str
    workers: int
    rows: int
    measured_ms: float
    predicted_ms: float | None
    calibrates: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """`weak`: a worker has as many rows as one alone; `strong`: all workers together have."""
        batch = WORKLOADS[self.model].batch
        sizes = {"weak": batch, "strong": batch / self.workers}
        return tuple(kind for kind, rows in sizes.items() if rows == self.rows)

    @property
    def error(self) -> float | None:
        """Of the prediction, relative."""
        return None if self.predicted_ms is None else relative_error(self.predicted_ms, self.measured_ms)


@dataclass(frozen=True)
class Exchange:
    """The line of an all-reduce, and its relative errors on sizes that it was not fitted to."""

    line: Line
    errors: tuple[float, ...]


def _medians(runs: Sequence[dict[str, Any]], column: str = "wall") -> dict[tuple[str, str, str], float]:
    """By case, participant and label."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        if run["section"] == "scaling" and "error" not in run:
            for label, series in run["series"].items():
                values.setdefault((run["case"], run["participant"], label), []).extend(series[column])
    return {key: statistics.median(found) for key, found in values.items()}


def _number(text: str) -> int:
    return int(text.split(maxsplit=1)[0])


def _bytes_of(label: str) -> int:
    number, unit = label.split()
    return int(number) << {"kB": 10, "MB": 20}[unit]


def fit_exchange(medians: _Medians, participant: str) -> Exchange | None:
    """Fits the all-reduce of a participant to every other size, and tests it on the rest."""
    found = sorted(
        (_bytes_of(label), ms) for (case, p, label), ms in medians.items() if (case, p) == (EXCHANGE_CASE, participant)
    )
    if len(found) < 3:
        return None
    line = fit_line(found[::2])
    return Exchange(line, tuple(relative_error(line.at(size), ms) for size, ms in found[1::2]))


def _worker_counts(medians: _Medians, model: str) -> list[int]:
    return sorted({_number(p) for case, p, _ in medians if case == model and p.endswith(("worker", "workers"))})


def _costs(medians: _Medians, model: str, cores: int, column: str = "wall") -> StepCosts:
    compute, read, exchange = {}, [], {}
    for (case, participant, label), ms in medians.items():
        if case == EXCHANGE_CASE and participant.endswith("shared memory"):
            fitted = fit_exchange(medians, participant)
            if fitted is not None:
                exchange[_number(participant)] = fitted.line
        elif case != model:
            continue
        elif participant == "1 worker":
            compute[_number(label), 1] = ms
        elif participant.endswith("each alone"):
            compute[_number(label), _number(participant)] = ms
        elif participant == "batches read":
            read.append((_number(label), ms))
    if column == "cpu":  # a process's own time does not become more when it waits for a core
        most = max(_worker_counts(medians, model), default=1)
        compute |= {
            (rows, n): ms for (rows, busy), ms in compute.items() for n in range(cores + 1, most + 1) if busy == cores
        }
        cores = max(cores, most)
    return StepCosts(
        cores, compute, fit_line(read) if read else Line(0, 0), exchange, gradient_bytes(model), gathered_bytes(model)
    )


def predict_cases(runs: Sequence[dict[str, Any]], cores: int, column: str = "wall") -> list[Case]:
    """The measured steps of models that were trained on several workers, with their predictions.

    The first step of several workers of each model calibrates the overhead.

    Args:
        runs: Of any sections.
        cores: How many the workers shared.
        column: `wall`, or `cpu` for the processor time of the first worker.
    """
    medians = _medians(runs, column)
    measured = _measured_cases(medians)
    calibrating = _calibrating(medians, measured, cores, column)
    overhead = fit_overhead(list(calibrating.values())) if calibrating else Line(0, 0)
    cases = []
    for case in measured:
        costs = _costs(medians, case.model, cores, column)
        known = dataclasses.replace(costs, overhead_ms=overhead.at(costs.gradient_bytes))
        # A single worker's step is what the model starts from, so it is no test of it.
        calibrates = case.workers == 1 or case in calibrating
        with contextlib.suppress(KeyError):
            predicted = predict_step_ms(known, case.workers, case.rows)
            case = dataclasses.replace(case, predicted_ms=predicted, calibrates=calibrates)  # noqa: PLW2901
        cases.append(case)
    return cases


def _measured_cases(medians: _Medians) -> list[Case]:
    cases = []
    for model in WORKLOADS:
        counts = _worker_counts(medians, model)
        for workers in counts if max(counts, default=1) > 1 else ():
            name = f"{workers} worker{'s' if workers > 1 else ''}"
            steps = [(_number(label), ms) for (c, p, label), ms in medians.items() if (c, p) == (model, name)]
            found = [Case(model, workers, rows, ms, None, False) for rows, ms in sorted(steps, reverse=True)]
            cases += [case for case in found if case.kinds]
    return cases


def _calibrating(
    medians: _Medians, cases: Sequence[Case], cores: int, column: str = "wall"
) -> dict[Case, tuple[float, float]]:
    """The first step of several workers of each model, with the bytes of its gradients and its overhead."""
    found: dict[str, tuple[Case, tuple[float, float]]] = {}
    for case in cases:
        if case.workers > 1 and case.model not in found:
            costs = _costs(medians, case.model, cores, column)
            with contextlib.suppress(KeyError):
                overhead = calibrate_overhead(costs, case.workers, case.rows, case.measured_ms)
                found[case.model] = case, (costs.gradient_bytes, overhead)
    return dict(found.values())


def _overhead(medians: _Medians, cores: int) -> Line:
    calibrating = _calibrating(medians, _measured_cases(medians), cores)
    return fit_overhead(list(calibrating.values())) if calibrating else Line(0, 0)


def report_scaling(runs: Sequence[dict[str, Any]], cores: int) -> list[str]:
    """The lines of the report; none if the section was not measured."""
    cases = predict_cases(runs, cores)
    if not cases:
        return []
    medians = _medians(runs)
    columns = ["model", "scaling", "workers", "sharing", "rows", "ms", "speed-up", "efficiency", "predicted", "error"]
    lines = [
        "",
        "### Weak and strong scaling, and the model of step time",
        "",
        "- Weak: each worker has the batch of one alone. Strong: all workers share it. `rows`: of a worker's batch.",
        f"- There are {cores} cores. More workers share them (`sharing`: workers a core), and {cores} is the largest "
        "speed-up there can be.",
        "- Speed-up: rows a second beside one worker with the whole batch. Efficiency: speed-up beside the largest.",
        "- `predicted`, in ms, is by `benchmarks/step_time.py`. Its overhead comes from the cases marked so, one of "
        "each model, and no other case was used for it.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for kind in ("weak", "strong"):
        lines += [_case_line(case, kind, cases, cores) for case in cases if kind in case.kinds]
    lines += _error_lines(cases)
    lines += _processor_lines(predict_cases(runs, cores, "cpu"))
    lines += _cost_lines(medians, cases, cores)
    return lines + report_projection(
        {model: costs for model in WORKLOADS if (costs := _costs(medians, model, cores)).compute_ms},
        *_host_costs(runs, medians),
        overhead=_overhead(medians, cores),
    )


def _error_lines(cases: Sequence[Case]) -> list[str]:
    tested = [abs(case.error) for case in cases if case.error is not None and not case.calibrates]
    if not tested:
        return []
    within = sum(error <= GOAL for error in tested)
    return [
        "",
        f"Errors of the {len(tested)} cases that test the model: median {statistics.median(tested):.0%}, largest "
        f"{max(tested):.0%}; {within} within the goal of {GOAL:.0%}.",
    ]


def _processor_lines(cases: Sequence[Case]) -> list[str]:
    """The same for processor time."""
    lines = [
        "",
        "The same model for the processor time of the first worker, each term being one of processor time, which other "
        "jobs on the machine disturb less:",
        "",
        "| model | workers | rows | processor ms | predicted | error |",
        "|---|---|---|---|---|---|",
    ]
    for case in cases:
        if case.predicted_ms is not None and case.error is not None and case.workers > 1:
            error = "(calibrates the overhead)" if case.calibrates else f"{case.error:+.0%}"
            times = f"{format_ms(case.measured_ms)} | {format_ms(case.predicted_ms)}"
            lines.append(f"| {case.model} | {case.workers} | {case.rows} | {times} | {error} |")
    return lines + _error_lines(cases)


def _case_line(case: Case, kind: str, cases: Sequence[Case], cores: int) -> str:
    batch = WORKLOADS[case.model].batch
    alone = [c.measured_ms for c in cases if (c.model, c.workers, c.rows) == (case.model, 1, batch)]
    speed_up = efficiency = ""
    if alone:
        ratio = case.workers * case.rows / case.measured_ms * alone[0] / batch
        speed_up, efficiency = f"{ratio:.2f}", f"{ratio / min(case.workers, cores):.0%}"
    predicted = "" if case.predicted_ms is None else format_ms(case.predicted_ms)
    error = "" if case.error is None else f"{case.error:+.0%}"
    if case.calibrates:
        error = "(measured for the model)" if case.workers == 1 else "(calibrates the overhead)"
    sharing = f"{max(1.0, case.workers / cores):g}"
    cells = (case.model, kind, case.workers, sharing, case.rows, format_ms(case.measured_ms))
    return f"| {' | '.join(map(str, cells))} | {speed_up} | {efficiency} | {predicted} | {error} |"


def _cost_lines(medians: _Medians, cases: Sequence[Case], cores: int) -> list[str]:
    lines = ["", "What the model is made of:", ""]
    lines += ["| quantity | value | error on sizes that it was not fitted to |", "|---|---|---|"]
    for participant in dict.fromkeys(p for case, p, _ in medians if case == EXCHANGE_CASE):
        fitted = fit_exchange(medians, participant)
        if fitted is not None:
            sizes = [abs(error) for error in fitted.errors]
            value = f"{fitted.line.alpha * 1000:.0f} us + {fitted.line.beta * 2**20:.3f} ms a MB"
            lines.append(
                f"| all-reduce, {participant} | {value} "
                f"| median {statistics.median(sizes):.0%}, largest {max(sizes):.0%} |"
            )
    overhead = _overhead(medians, cores)
    value = f"{overhead.alpha:.2f} ms {overhead.beta * 2**20:+.3f} ms a MB"
    lines.append(f"| overhead of a step of several workers | {value} | |")
    for model in dict.fromkeys(case.model for case in cases):
        costs = _costs(medians, model, cores)
        lines.append(f"| {model}: reading a row of the global batch | {costs.read_ms.beta * 1000:.2f} us | |")
        for (rows, busy), ms in sorted(costs.compute_ms.items(), reverse=True):
            who = "alone" if busy == 1 else f"{busy} processes, each alone"
            lines.append(f"| {model}: a step of {rows} rows, {who} | {format_ms(ms)} ms | |")
    return lines


def _host_costs(runs: Sequence[dict[str, Any]], medians: _Medians) -> tuple[float | None, float | None]:
    """What a byte and a message cost a host: from the sockets between two workers, and the processor time of more.

    The processor time of an all-reduce of 1 kB, in which each worker sends one message to each other one, grows with
    the number of the others.
    """
    two = fit_exchange(medians, "2 workers, sockets")
    used = {
        _number(p): ms
        for (case, p, label), ms in _medians(runs, "cpu").items()
        if (case, label) == (EXCHANGE_CASE, "1 kB") and p.endswith("sockets")
    }
    if two is None or not two.line.beta or not used:
        return None, None
    fewest, most = min(used), max(used)
    a_message = (used[most] - used[fewest]) / (most - fewest) if most > fewest else used[fewest] / (fewest - 1)
    return two.line.beta, max(0.0, a_message)
