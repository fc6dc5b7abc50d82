"""What is wrong with a node by itself or with what the nodes share: directory, clocks, files, cores. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

from tfdist.diagnosis.agreement import num_cores, workers_of
from tfdist.diagnosis.facts import NodeReport, Status
from tfdist.diagnosis.findings import Finding

__all__ = ["CLOCK_LIMIT_S", "find_bad_conditions", "needed_open_files"]

#: How far clocks may be apart. Times of files, logs and events of several nodes are compared in seconds.
CLOCK_LIMIT_S = 1.0


def find_bad_conditions(reports: Sequence[NodeReport]) -> list[Finding]:
    """All findings of this module. `reports` are in the order of tasks."""
    return [
        *_check_directories(reports),
        *_check_clocks(reports),
        *_check_open_files(reports),
        *_check_cores(reports),
        *_check_tensorflow(reports),
    ]


def needed_open_files(num_tasks: int) -> int:
    """How many files a task of a cluster may have to open: 1024, the usual limit, serves up to 96 tasks.

    A rule with room for data files and logs: 256, and up to 8 connections for each task. (Each of two workers of
    recipes/digits.py has 16 files open.)
    """
    return max(1024, 256 + 8 * num_tasks)


def _check_directories(reports: Sequence[NodeReport]) -> list[Finding]:
    findings = []
    given = [report for report in reports if report.facts.checkpoint_dir is not None]
    usable = [r for r in given if r.observations is not None and not r.observations.checkpoint_problem]
    for report in reports:
        facts, observed = report.facts, report.observations
        path = facts.checkpoint_dir
        if path is None:
            if given:
                findings.append(
                    Finding(
                        "checkpoint directory",
                        facts.name,
                        "the doctor was not told the checkpoint directory, as on others",
                        f"no --checkpoint-dir (on the command line on {facts.name})",
                        f"--checkpoint-dir {given[0].facts.checkpoint_dir}, as on {given[0].facts.name}",
                        "give the doctor the same options on every node",
                    )
                )
        elif observed is not None and observed.checkpoint_problem:
            findings.append(
                Finding(
                    "checkpoint directory",
                    facts.name,
                    f"the checkpoint directory cannot be written to: {observed.checkpoint_problem}",
                    f"--checkpoint-dir={path} (on {facts.name})",
                    "a directory that every node may write to",
                    f"create or mount {path} there, and let the user who trains write to it",
                )
            )
        elif observed is not None:
            unseen = [r for r in usable if r is not report and r.facts.token not in observed.seen_in_checkpoint_dir]
            if unseen:
                names = ", ".join(r.facts.name for r in unseen)
                findings.append(
                    Finding(
                        "checkpoint directory",
                        facts.name,
                        f"the checkpoint directory is not shared with {names}",
                        f"--checkpoint-dir={path} (on {facts.name}), without the files that {names} wrote "
                        f"to {', '.join(sorted({str(r.facts.checkpoint_dir) for r in unseen}))}",
                        "one directory that every node sees, such as on NFS",
                        f"mount the same file system at {path} on all nodes, or correct the path",
                    )
                )
    return findings


def _check_clocks(reports: Sequence[NodeReport]) -> list[Finding]:
    """Each clock against the middle one; of two clocks, against the first node's."""
    if len(reports) < 2:
        return []
    first = reports[0]
    offsets = {
        first.facts.token: (0.0, 0.0)
    }  # from token to the clock there minus the first node's, and the round trip
    for report in reports:
        for link in report.observations.links if report.observations is not None else ():
            if link.status != Status.REACHED or link.offset_s is None or link.latency_s is None:
                continue
            if report is first and link.peer != first.facts.token:
                offsets[link.peer] = (link.offset_s, link.latency_s)
            elif link.peer == first.facts.token and report is not first:
                offsets.setdefault(report.facts.token, (-link.offset_s, link.latency_s))
    middle = median_low(sorted(offset for offset, _ in offsets.values())) if len(offsets) > 2 else 0.0
    findings = []
    for report in reports:
        offset_s, round_trip_s = offsets.get(report.facts.token, (middle, 0.0))
        apart_s = offset_s - middle
        if abs(apart_s) - round_trip_s / 2 > CLOCK_LIMIT_S:
            against = f"the clock of {first.facts.name}" if len(offsets) == 2 else "the middle one of all clocks"
            findings.append(
                Finding(
                    "clock",
                    report.facts.name,
                    f"its clock is {abs(apart_s):.1f} s {'ahead' if apart_s > 0 else 'behind'}",
                    f"{apart_s:+.3f} s against {against}, give or take {round_trip_s / 2:.3f} s",
                    f"clocks at most {CLOCK_LIMIT_S:g} s apart",
                    "let NTP set it there (timedatectl set-ntp true, or chronyc makestep)",
                )
            )
    return findings


def _check_open_files(reports: Sequence[NodeReport]) -> list[Finding]:
    findings = []
    for report in reports:
        facts = report.facts
        needed = needed_open_files(sum(map(len, facts.cluster.values())))
        if 0 <= facts.open_files < needed:
            is_allowed = facts.open_files_hard < 0 or facts.open_files_hard >= needed
            findings.append(
                Finding(
                    "open files",
                    facts.name,
                    "a process may open too few files",
                    f"ulimit -n = {facts.open_files}, hard limit {facts.open_files_hard} (on {facts.name})",
                    f"at least {needed} for a cluster of {sum(map(len, facts.cluster.values()))} tasks",
                    f"run there before training: ulimit -n {needed}"
                    if is_allowed
                    else f"raise nofile to {needed} in limits.conf, the service or the container there",
                )
            )
    return findings


def _check_cores(reports: Sequence[NodeReport]) -> list[Finding]:
    by_host: dict[str, list[NodeReport]] = {}
    for report in workers_of(reports):
        by_host.setdefault(report.facts.host_id or report.facts.token, []).append(report)
    findings = []
    for here in by_host.values():
        cpus = {cpu for report in here for cpu in report.facts.cpus}
        available = min(float(len(cpus)), sum(map(num_cores, here)))
        if cpus and available < len(here):
            tasks = ", ".join(report.facts.task for report in here)
            findings.append(
                Finding(
                    "cores",
                    here[-1].facts.name,
                    f"there are fewer cores than workers on {here[-1].facts.host}",
                    f"{available:g} cores for {len(here)} workers ({tasks})",
                    "at least one core for each worker",
                    f"start at most {max(int(available), 1)} of them there, or allow more cores",
                )
            )
    return findings


def _check_tensorflow(reports: Sequence[NodeReport]) -> list[Finding]:
    return [
        Finding(
            "devices",
            report.facts.name,
            f"TensorFlow cannot be asked for its devices: {report.observations.devices_problem}",
            f"import tensorflow (in a process of its own on {report.facts.name})",
            "TensorFlow starts and lists its devices within the time limit",
            "run there: python -c 'import tensorflow'; if it is only slow, give --time-limit-s 60",
        )
        for report in reports
        if report.observations is not None and report.observations.devices_problem
    ]
