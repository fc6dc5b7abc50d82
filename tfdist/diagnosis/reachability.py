"""Which nodes cannot reach which, and why. Pure.

Where the cause is known (a port that is taken, a description that differs), what follows from it is not listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfdist.cluster.address import split_address
from tfdist.diagnosis.agreement import expected_cluster
from tfdist.diagnosis.facts import Link, NodeReport, PortState, Status
from tfdist.diagnosis.findings import Finding

__all__ = ["find_unreachable"]

_UNRESOLVED = (Status.RESOLVING, Status.UNRESOLVED)


def find_unreachable(reports: Sequence[NodeReport]) -> list[Finding]:
    """All findings of this module. `reports` are in the order of tasks."""
    return [
        *_find_double_tasks(reports),
        *_find_port_problems(reports),
        *_find_unresolved(reports),
        *_find_foreign_addresses(reports),
        *_find_bad_links(reports),
    ]


def _find_double_tasks(reports: Sequence[NodeReport]) -> list[Finding]:
    findings = []
    by_task: dict[str, list[NodeReport]] = {}
    for report in reports:
        by_task.setdefault(report.facts.task, []).append(report)
    for task, here in by_task.items():
        if len(here) > 1:
            names = ", ".join(f"{r.facts.host} (doctor {r.facts.token[:6]})" for r in here)
            findings.append(
                Finding(
                    "task",
                    here[-1].facts.name,
                    f"{len(here)} nodes say that they are {task}",
                    f"{task} on {names} (from TF_CONFIG there)",
                    "a task of its own for every node",
                    f"correct task.index in the TF_CONFIG of all but one of them; {_describe_own(here, task)}",
                )
            )
    return findings


def _describe_own(here: Sequence[NodeReport], task: str) -> str:
    address = next((r.facts.address for r in here if r.facts.address), "")
    return f"{task} is listed at {address}" if address else f"{task} is in no list"


def _find_port_problems(reports: Sequence[NodeReport]) -> list[Finding]:
    texts = {
        PortState.TAKEN: ("is taken", "end what holds it, or give this task another port in TF_CONFIG on all nodes"),
        PortState.DENIED: ("may not be opened", "use a port from 1024 up, in TF_CONFIG on all nodes"),
        PortState.FAILED: ("cannot be opened", "mend the network of this machine, or use another address"),
    }
    findings = []
    for report in reports:
        facts = report.facts
        if facts.port_state in texts:
            what, fix = texts[facts.port_state]
            port = split_address(facts.address)[1]
            findings.append(
                Finding(
                    "port",
                    facts.name,
                    f"its port {port} {what}",
                    f"{facts.address} (from TF_CONFIG): {facts.port_detail}",
                    "a port that this task can open",
                    fix,
                )
            )
    return findings


def _find_unresolved(reports: Sequence[NodeReport]) -> list[Finding]:
    findings = []
    for report in reports:
        hosts: dict[str, list[Link]] = {}
        for link in _links(report):
            if link.status in _UNRESOLVED:
                hosts.setdefault(split_address(link.address)[0], []).append(link)
        for host, links in hosts.items():
            findings.append(
                Finding(
                    "name",
                    report.facts.name,
                    f"the name {host} of {_join(link.task for link in links)} does not resolve there",
                    f"{host} (from TF_CONFIG on {report.facts.name}): {links[0].detail}",
                    "a name that every node resolves, or an IP address",
                    f"correct the name in TF_CONFIG, or add {host} to the DNS or to /etc/hosts there",
                )
            )
    return findings


def _find_foreign_addresses(reports: Sequence[NodeReport]) -> list[Finding]:
    findings = []
    for report in reports:
        facts, observed = report.facts, report.observations
        if observed is None or observed.address_is_local or not facts.address:
            continue
        own = next((link for link in observed.links if link.task == facts.task), None)
        if own is not None and (own.peer == facts.token or own.status in _UNRESOLVED):
            continue  # it leads here all the same, as behind a NAT; or the name is listed already
        findings.append(
            Finding(
                "address",
                facts.name,
                f"its address {facts.address} does not lead to this machine",
                f"{facts.task}={facts.address} (from TF_CONFIG on {facts.name})",
                "an address of the machine that runs the task",
                f"run {facts.task} on the machine that has this address, or correct the address on all nodes",
            )
        )
    return findings


def _find_bad_links(reports: Sequence[NodeReport]) -> list[Finding]:
    expected = expected_cluster(reports)
    known = {report.facts.task: report for report in reports}
    grouped: dict[tuple[str, str, str, str], list[NodeReport]] = {}
    for report in reports:
        for link in _links(report):
            target = known.get(link.task)
            if link.status in (*_UNRESOLVED, Status.REACHED) or link.task == report.facts.task:
                continue
            if target is not None and target.facts.port_state not in (PortState.OPEN, PortState.NONE):
                continue
            has_other_address = link.address != expected.get(link.task)
            if has_other_address or (target is not None and target.facts.address != expected.get(link.task)):
                continue  # the descriptions differ, which is listed
            grouped.setdefault((link.task, link.address, link.status, link.detail), []).append(report)
    findings = []
    for (task, address, status, detail), observers in grouped.items():
        target = known.get(task)
        node = target.facts.name if target is not None else f"{task} at {address}"
        what, fix = _describe_link(status, task, address, is_running=target is not None)
        findings.append(
            Finding(
                "connection",
                node,
                what,
                f"{address}: {detail} (seen by {_join(r.facts.name for r in observers)})",
                f"tfdist doctor answers there as {task}, so that the others can connect",
                fix,
            )
        )
    return findings


def _describe_link(status: str, task: str, address: str, *, is_running: bool) -> tuple[str, str]:
    port = split_address(address)[1]
    if status == Status.REFUSED:
        if is_running:
            return (
                f"it runs, but refuses connections to its port {port}",
                f"let its firewall accept TCP connections to port {port}, or list an address that leads to it",
            )
        return (
            f"nothing listens at its port {port}",
            f"run tfdist doctor there as {task} within the time limit of the others, or correct its address",
        )
    if status == Status.CONNECTING and is_running:
        return (
            f"it runs, but connections to its port {port} get no answer: they are blocked",
            f"let firewalls and security groups pass TCP to port {port} there",
        )
    if status == Status.CONNECTING:
        return (
            f"connections to its port {port} get no answer: they are blocked, or the machine is down",
            f"let firewalls and security groups pass TCP to port {port}, and see that the machine is up",
        )
    if status == Status.UNREACHABLE:
        return "there is no way to it in the network", "correct its address, or mend the route or the firewall"
    if status == Status.SECRET:
        return (
            "it has another secret",
            "set TFDIST_JOB_SECRET to the same text on all nodes",
        )
    if status == Status.SILENT:
        return (
            f"something accepts connections at its port {port} and says nothing: another program, or one that hangs",
            f"see what holds port {port} there (ss -ltnp), end it, and run the doctor again",
        )
    if status == Status.STRANGER:
        return (
            f"another program answers at its port {port}",
            "end that program, or give the task another port in TF_CONFIG on all nodes",
        )
    if status == Status.WRONG_TASK:
        return (
            "another task answers at its address",
            "correct TF_CONFIG: the task there, or the address of this one",
        )
    return (
        "it answered, and then broke off or was too slow",
        "see whether its machine is overloaded or the network loses packets, and run the doctor again",
    )


def _links(report: NodeReport) -> tuple[Link, ...]:
    return report.observations.links if report.observations is not None else ()


def _join(names: object) -> str:
    return ", ".join(dict.fromkeys(names))  # type: ignore[call-overload]
