"""A diagnosis in words and as JSON. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from tfdist.diagnosis.facts import Link, NodeReport, Status
from tfdist.diagnosis.findings import Finding

__all__ = ["describe_diagnosis", "to_json"]

_MOST_LINKS = 30  # a screenful


def describe_diagnosis(findings: Sequence[Finding], reports: Sequence[NodeReport], seconds: float) -> str:
    """The verdict first, then each finding, then what was seen of the nodes and between them."""
    nodes = f"{len(reports)} node{'s' if len(reports) != 1 else ''} answered, {seconds:.1f} s"
    verdict = f"{len(findings)} finding{'s' if len(findings) != 1 else ''}" if findings else "nothing found"
    lines = [f"tfdist doctor: {verdict}; {nodes}."]
    lines += [f"{number}. {finding}" for number, finding in enumerate(findings, 1)]
    lines += ["", *_table(["node", "Python", "TensorFlow", "Keras", "cores", "GPUs", "files"], _node_rows(reports))]
    links = [(report.facts.task, link) for report in reports for link in _links_to_others(report)]
    if len(links) > _MOST_LINKS:
        lines += ["", f"Of {len(links)} links, the {_MOST_LINKS} slowest ones (--json has all):"]
        links = sorted(links, key=lambda entry: entry[1].latency_s or 0.0, reverse=True)[:_MOST_LINKS]
    rows = [[task, link.task, *_measured(link)] for task, link in links]
    if rows:
        lines += ["", *_table(["from", "to", "round trip", "clock", "bandwidth"], rows)]
    return "\n".join(lines)


def to_json(findings: Sequence[Finding], reports: Sequence[NodeReport], seconds: float, limit_s: float) -> str:
    """The same for programs."""
    return json.dumps(
        {
            "findings": [dataclasses.asdict(finding) for finding in findings],
            "nodes": [dataclasses.asdict(report) for report in reports],
            "seconds": round(seconds, 3),
            "time_limit_s": limit_s,
        },
        indent=2,
    )


def _node_rows(reports: Sequence[NodeReport]) -> list[list[str]]:
    return [
        [
            report.facts.name,
            *(report.facts.versions.get(name) or "-" for name in ("python", "tensorflow", "keras")),
            str(len(report.facts.cpus)),
            str(len(report.facts.gpus)),
            str(report.facts.open_files) if report.facts.open_files >= 0 else "any",
        ]
        for report in reports
    ]


def _links_to_others(report: NodeReport) -> list[Link]:
    links = report.observations.links if report.observations is not None else ()
    return [link for link in links if link.task != report.facts.task]


def _measured(link: Link) -> list[str]:
    if link.status != Status.REACHED or link.latency_s is None or link.offset_s is None:
        return ["-", "-", "-"]
    bandwidth = "" if link.bandwidth_bytes_s is None else f"{link.bandwidth_bytes_s / 1e6:.0f} MB/s"
    return [f"{link.latency_s * 1e3:.2f} ms", f"{link.offset_s * 1e3:+.1f} ms", bandwidth]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]
    ]
