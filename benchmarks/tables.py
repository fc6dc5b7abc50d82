"""The report as Markdown. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.summary import Row, Spread

__all__ = ["format_ms", "report", "to_json"]

_TITLES = {
    "steps": "A training step on workers",
    "devices": "A training step on two devices of one process",
    "all_reduce": "All-reduce of float32",
    "scaling": "Scaling of tfdist's fit",
    "callbacks": "A training step of tfdist's fit with callbacks",
    "checkpoints": "Saving while training",
    "callback_overhead": "A step with a callback of tfdist's and without, in turns in one process",
    "load_balance": "A step with a straggler, as LoadBalanceMonitor says it would be without, and as it is",
    "recovery": "From the kill of a worker to the end of the next step",
    "parameter_servers": "A training step under parameter servers",
    "start_up": "Start-up",
}


def format_ms(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _with_quartiles(spread: Spread | None, form: Any) -> str:
    if spread is None:
        return ""
    if spread.count == 1:
        return str(form(spread.median))
    return f"{form(spread.median)} ({form(spread.lower)} to {form(spread.upper)})"


def to_json(head: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    """Everything that was measured, to four significant digits, with a line for each run."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.4g}")
        if isinstance(value, Mapping):
            return {key: rounded(each) for key, each in value.items()}
        return [rounded(each) for each in value] if isinstance(value, list) else value

    lines = ",\n".join(json.dumps(rounded(run), separators=(",", ":")) for run in runs)
    return f'{{"head": {json.dumps(head, indent=1)},\n"runs": [\n{lines}\n]}}\n'


def report(
    rows: Sequence[Row],
    heading: Sequence[str],
    references: dict[str, str],
    more: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Returns the report.

    Args:
        rows: In the order of the tables.
        heading: Lines on the date, the machine and the versions.
        references: The participant beside which ratios are given, by section.
        more: Further lines, by the section after whose table they stand.
    """
    lines = ["# Benchmarks", "", *heading]
    for section in dict.fromkeys(row.section for row in rows):
        beside = f"; ratios beside {references[section]}, round by round" if references[section] else ""
        lines += ["", f"## {_TITLES[section]}", "", f"Milliseconds: median (lower to upper quartile){beside}.", ""]
        lines += ["| case | participant | ms | processor ms | ratio |", "|---|---|---|---|---|"]
        case = None
        for row in (row for row in rows if row.section == section):
            shown = row.case if row.case != case else ""
            case = row.case
            time = f"fails: {row.error}".replace("|", "/") if row.wall is None else _with_quartiles(row.wall, format_ms)
            cpu = "" if row.cpu is None else format_ms(row.cpu.median)
            ratio = _with_quartiles(row.ratio, "{:.2f}".format)
            lines.append(f"| {shown} | {row.participant} | {time} | {cpu} | {ratio} |")
        lines += (more or {}).get(section, [])
    return "\n".join(lines) + "\n"
