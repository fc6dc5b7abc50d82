"""Medians, quartiles and ratios of what was measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "Spread", "median_ratio", "spread", "summarize"]


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    lower: float
    upper: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """The median and quartiles of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, lower, upper, len(values))


def median_ratio(values: dict[int, Sequence[float]], reference: dict[int, Sequence[float]]) -> Spread | None:
    """Compares each round's median with the reference's of the same round, which was measured at nearly the same time.

    Args:
        values: By round.
        reference: By round.

    Returns:
        The spread of `values / reference` over the rounds that both have; None if there is none.
    """
    rounds = sorted(set(values) & set(reference))
    ratios = [statistics.median(values[r]) / statistics.median(reference[r]) for r in rounds]
    return spread(ratios) if ratios else None


@dataclass(frozen=True)
class Row:
    """One line of a table: a participant in a case.

    Attributes:
        section: As in the plan.
        case: What was done, such as `small_dense, 2 workers`.
        participant: Who did it.
        wall: Of the times.
        cpu: Of the processor times of one process, if measured.
        ratio: `wall` beside the reference of the section, round by round; None for the reference itself.
        error: Why there are no times.
    """

    section: str
    case: str
    participant: str
    wall: Spread | None
    cpu: Spread | None = None
    ratio: Spread | None = None
    error: str | None = None


def summarize(runs: Sequence[dict[str, Any]], reference_of: dict[str, str]) -> list[Row]:
    """Puts the rounds of each participant together, in the order of the runs.

    Args:
        runs: Each with `section`, `case`, `participant`, `round`, and `series` (by label, lists `wall` and `cpu`) or
            `error`.
        reference_of: The participant beside which ratios are given, by section.
    """
    walls: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    cpus: dict[tuple[str, str, str], list[float]] = {}
    errors: dict[tuple[str, str, str], str] = {}
    for run in runs:
        for label, series in run.get("series", {"": {}}).items():
            case = ", ".join(filter(None, (run["case"], label)))
            key = (run["section"], case, run["participant"])
            walls.setdefault(key, {})
            if "error" in run:
                errors[key] = run["error"]
                continue
            walls[key].setdefault(run["round"], []).extend(series["wall"])
            cpus.setdefault(key, []).extend(series.get("cpu", []))
    rows = []
    cases = list(dict.fromkeys(key[:2] for key in walls))
    for key in sorted(walls, key=lambda key: cases.index(key[:2])):  # a case's participants stand together
        by_round = walls[key]
        section, case, participant = key
        values = [value for round_values in by_round.values() for value in round_values]
        if not values:
            rows.append(Row(*key, None, error=errors[key]))
            continue
        reference = reference_of.get(section, "")
        beside = walls.get((section, case, reference), {})
        ratio = None if participant == reference else median_ratio(by_round, beside)
        cpu = cpus.get(key)
        rows.append(Row(*key, spread(values), spread(cpu) if cpu else None, ratio, errors.get(key)))
    return rows
