"""What must be the same on all nodes, and is not. Pure.

What most nodes have is expected of the others; where no value has more nodes than another, that of the first node is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from tfdist.diagnosis.facts import NodeReport, addresses_of
from tfdist.diagnosis.findings import Finding

__all__ = ["expected_cluster", "find_differences", "num_cores", "workers_of"]

_Value = TypeVar("_Value")
_LABELS = {"python": "Python", "tensorflow": "TensorFlow", "keras": "Keras", "tfdist": "tfdist"}
_TRAINING_TYPES = ("worker", "chief")


def find_differences(reports: Sequence[NodeReport]) -> list[Finding]:
    """All findings of this module. `reports` are in the order of tasks."""
    return [
        *_compare_clusters(reports),
        *_compare_versions(reports),
        *_compare_scripts(reports),
        *_compare_cores(reports),
        *_compare_gpus(reports),
        *_compare_devices(reports),
    ]


def expected_cluster(reports: Sequence[NodeReport]) -> dict[str, str]:
    """From task to address, as most nodes have it."""
    clusters = [addresses_of(report.facts.cluster) for report in reports]
    return json.loads(_most_common([json.dumps(cluster) for cluster in clusters])) if clusters else {}


def _compare_clusters(reports: Sequence[NodeReport]) -> list[Finding]:
    findings = []
    for report, _, reference in _deviating(reports, lambda r: json.dumps(addresses_of(r.facts.cluster))):
        own, others = addresses_of(report.facts.cluster), addresses_of(reference.facts.cluster)
        tasks = [task for task in {**others, **own} if own.get(task) != others.get(task)]
        received = ", ".join(f"{task}={own.get(task, '(not listed)')}" for task in tasks)
        expected = ", ".join(f"{task}={others.get(task, '(not listed)')}" for task in tasks)
        findings.append(
            Finding(
                "cluster description",
                report.facts.name,
                "its TF_CONFIG describes another cluster",
                f"{received or 'the same tasks in another order'} (from TF_CONFIG on {report.facts.name})",
                f"{expected or ', '.join(others)}, {_as_on(reports, reference)}",
                f"give {report.facts.task} the same cluster as the others; only the task differs between nodes",
            )
        )
    return findings


def _compare_versions(reports: Sequence[NodeReport]) -> list[Finding]:
    findings = []
    for package, label in _LABELS.items():
        for report in reports:
            if package in report.facts.versions and report.facts.versions[package] is None:
                findings.append(
                    Finding(
                        "versions",
                        report.facts.name,
                        f"{label} is not installed for the Python that ran tfdist",
                        f"{package}=(not installed) on {report.facts.name}",
                        f"{label} on every node",
                        f"install {package} there, or run tfdist with the Python that trains",
                    )
                )
        having = [report for report in reports if report.facts.versions.get(package) is not None]
        for report, value, reference in _deviating(having, lambda r, name=package: _version(r, name)):  # type: ignore[misc]
            wanted = _version(reference, package)
            there = reference.facts.versions[package]
            findings.append(
                Finding(
                    "versions",
                    report.facts.name,
                    f"its {label} is {value}, and that of others {wanted}",
                    f"{package}={report.facts.versions[package]} (installed on {report.facts.name})",
                    f"{package}={there}, {_as_on(having, reference)}",
                    f"install Python {wanted} there"
                    if package == "python"
                    else f"run there: python -m pip install {package}=={there}",
                )
            )
    return findings


def _version(report: NodeReport, package: str) -> str:
    version = report.facts.versions[package] or ""
    return ".".join(version.split(".")[:2]) if package == "python" else version


def _compare_scripts(reports: Sequence[NodeReport]) -> list[Finding]:
    findings = []
    given = [report for report in reports if report.facts.script is not None]
    for report in reports:
        facts = report.facts
        if facts.script is None and given:
            findings.append(
                Finding(
                    "script",
                    facts.name,
                    "the doctor was not told the script, as on others",
                    f"no --script (on the command line on {facts.name})",
                    f"--script {given[0].facts.script}, as on {given[0].facts.name}",
                    "give the doctor the same options on every node",
                )
            )
        if facts.script_problem:
            findings.append(
                Finding(
                    "script",
                    facts.name,
                    f"the script cannot be read: {facts.script_problem}",
                    f"--script={facts.script} (on {facts.name})",
                    "a file that can be read on every node",
                    "copy it there, or correct the path",
                )
            )
    readable = [report for report in given if report.facts.script_digest]
    for report, digest, reference in _deviating(readable, lambda r: r.facts.script_digest):
        findings.append(
            Finding(
                "script",
                report.facts.name,
                "its script is another than that of others",
                f"{report.facts.script} with SHA-256 {digest[:12]}... (on {report.facts.name})",
                f"SHA-256 {reference.facts.script_digest[:12]}..., {_as_on(readable, reference)}",
                f"copy {reference.facts.script} from {reference.facts.name} there",
            )
        )
    return findings


def _compare_cores(reports: Sequence[NodeReport]) -> list[Finding]:
    workers = workers_of(reports)
    return [
        Finding(
            "devices",
            report.facts.name,
            f"it may use {count} cores, and others {num_cores(reference)}: workers in step wait for the slowest",
            f"{count} cores (its affinity and control group on {report.facts.name})",
            f"{num_cores(reference)} cores, {_as_on(workers, reference)}",
            "give all workers as many cores, such as with equal taskset or container limits",
        )
        for report, count, reference in _deviating(workers, num_cores)
    ]


def _compare_gpus(reports: Sequence[NodeReport]) -> list[Finding]:
    workers = workers_of(reports)
    return [
        Finding(
            "devices",
            report.facts.name,
            "it has other GPUs than others: every worker needs as many, and the slowest sets the pace",
            f"{_list(gpus)} (from the driver and CUDA_VISIBLE_DEVICES on {report.facts.name})",
            f"{_list(tuple(sorted(reference.facts.gpus)))}, {_as_on(workers, reference)}",
            "use nodes with equal GPUs, and show as many on each (CUDA_VISIBLE_DEVICES)",
        )
        for report, gpus, reference in _deviating(workers, lambda r: tuple(sorted(r.facts.gpus)))
    ]


def _compare_devices(reports: Sequence[NodeReport]) -> list[Finding]:
    asked = [r for r in workers_of(reports) if r.observations is not None and r.observations.devices is not None]
    return [
        Finding(
            "devices",
            report.facts.name,
            "TensorFlow shows other devices than on others",
            f"{devices} (from TensorFlow on {report.facts.name})",
            f"{_devices(reference)}, {_as_on(asked, reference)}",
            "install the same TensorFlow and driver, and show as many devices on each (CUDA_VISIBLE_DEVICES)",
        )
        for report, devices, reference in _deviating(asked, _devices)
    ]


def num_cores(report: NodeReport) -> float:
    """How many cores a node's process may use at a time."""
    facts = report.facts
    count = len(facts.cpus)
    return count if facts.cpu_quota is None or facts.cpu_quota >= count else facts.cpu_quota


def _devices(report: NodeReport) -> str:
    devices = report.observations.devices if report.observations is not None else None
    return ", ".join(f"{count} {kind}" for kind, count in sorted((devices or {}).items())) or "no devices"


def workers_of(reports: Sequence[NodeReport]) -> list[NodeReport]:
    """The nodes that work on batches: not a coordinator, a parameter server or an evaluator."""
    has_servers = any("ps" in report.facts.cluster for report in reports)
    kinds = ("worker",) if has_servers else _TRAINING_TYPES
    return [report for report in reports if report.facts.task_type in kinds]


def _list(gpus: tuple[str, ...]) -> str:
    return ", ".join(f"{count} x {model}" for model, count in sorted(Counter(gpus).items())) or "no GPUs"


def _most_common(values: Sequence[_Value]) -> _Value:
    counts = Counter(values)  # keeps the order of first occurrence, and `max` takes the first of the largest
    return max(counts, key=lambda value: counts[value])


def _deviating(
    reports: Sequence[NodeReport], value_of: Callable[[NodeReport], _Value]
) -> list[tuple[NodeReport, _Value, NodeReport]]:
    """The nodes whose value is not that of most, each with its value and the first node that has the common one."""
    values = [value_of(report) for report in reports]
    if len(set(values)) < 2:
        return []
    common = _most_common(values)
    reference = reports[values.index(common)]
    return [(report, value, reference) for report, value in zip(reports, values, strict=True) if value != common]


def _as_on(reports: Sequence[NodeReport], reference: NodeReport) -> str:
    return f"as on {reference.facts.name}" + (" and others" if len(reports) > 2 else "")
