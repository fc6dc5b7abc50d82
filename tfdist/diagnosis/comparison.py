"""What the nodes' reports say would go wrong. Pure: reports in, findings out."""

from __future__ import annotations

from collections.abc import Sequence

from tfdist.diagnosis.agreement import find_differences
from tfdist.diagnosis.conditions import find_bad_conditions
from tfdist.diagnosis.facts import NodeReport, checked_tasks
from tfdist.diagnosis.findings import Finding
from tfdist.diagnosis.reachability import find_unreachable

__all__ = ["compare_nodes", "merge_reports"]


def compare_nodes(reports: Sequence[NodeReport]) -> list[Finding]:
    """Compares the reports of all nodes.

    Args:
        reports: One for each node that answered.

    Returns:
        What would go wrong: first what keeps nodes from reaching each other, then what differs, then the rest.
    """
    ordered = _in_order(reports)
    return [*find_unreachable(ordered), *find_differences(ordered), *find_bad_conditions(ordered)]


def merge_reports(reports: Sequence[NodeReport]) -> list[NodeReport]:
    """One report for each node, in order of tasks, of several that were heard; one with observations counts more."""
    merged: dict[str, NodeReport] = {}
    for report in reports:
        known = merged.get(report.facts.token)
        if known is None or known.observations is None:
            merged[report.facts.token] = report
    return _in_order(list(merged.values()))


def _in_order(reports: Sequence[NodeReport]) -> list[NodeReport]:
    order = checked_tasks(list(reports))
    return sorted(reports, key=lambda report: (order.index(report.facts.task), report.facts.token))
