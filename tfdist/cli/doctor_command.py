"""`tfdist doctor`: what would go wrong in a job on these nodes, in seconds."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from tfdist.cli.options import check_environment, read_seconds, read_whole_number
from tfdist.errors import ArgumentError, ClusterConfigError, describe_problem

if TYPE_CHECKING:
    from tfdist.cluster import ClusterConfig
    from tfdist.diagnosis.facts import NodeReport
    from tfdist.diagnosis.findings import Finding

_USAGE = """tfdist doctor [options]                 on every node, with the TF_CONFIG that the job will have
       tfdist doctor --local N [options]       on this machine alone"""
_EPILOG = """Run it on all nodes at the same time, give or take some seconds, and before the job: it opens the port that
the job will use. TFDIST_JOB_SECRET has to be the same text on all of them. The exit status is 0 if nothing is found, 1
for findings, 2 for an unusable command."""
_INTERRUPTED_STATUS = 130
_SMALLEST_LIMIT_S = 3.0
# What is left of the time limit, in seconds, when a node stops looking, stops talking, and is killed.
_SETTLE_BEFORE_END_S, _END_BEFORE_END_S, _KILL_BEFORE_END_S = 2.0, 1.0, 0.4


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `tfdist`."""
    parser = commands.add_parser(
        "doctor",
        help="tell in seconds what would go wrong in a job on these nodes",
        description="Compares the nodes of a cluster: names, ports, TF_CONFIG, versions, script, checkpoint directory, "
        "clocks, limits and devices. Measures latency and bandwidth between them.",
        usage=_USAGE,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("--local", metavar="N", help="instead of TF_CONFIG: N workers on this machine")
    option("--script", metavar="FILE", help="the training script, to be the same on all nodes")
    option("--checkpoint-dir", metavar="DIR", help="a directory that all nodes have to share and to write to")
    option("--devices", action="store_true", help="also ask TensorFlow for its devices; its start takes seconds")
    option("--time-limit-s", metavar="S", help="when it ends, whatever holds it up (10; 30 with --devices)")
    option("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> int:
    """Carries the command out.

    Args:
        options: The parsed arguments.

    Returns:
        The exit status: 0 if nothing was found, 1 for findings.

    Raises:
        ArgumentError: Something on the command line or in the environment cannot be used as it is.
    """
    import secrets

    started = _process_start()
    from tfdist.cluster.job_environment import JOB_SECRET
    from tfdist.diagnosis.comparison import compare_nodes, merge_reports
    from tfdist.diagnosis.report import describe_diagnosis, to_json

    limit_s = _read_limit(options.time_limit_s or ("30" if options.devices else "10"))
    findings: list[Finding] = []
    reports: list[NodeReport] = []
    try:
        if options.local is not None:
            check_environment(os.environ, "tfdist doctor --local")
            nodes = _local_nodes(read_whole_number("--local", options.local, minimum=1))
            env = {**os.environ, JOB_SECRET: secrets.token_hex(32)}
        else:
            nodes, env = [_own_node()], dict(os.environ)
    except ClusterConfigError as error:
        findings.append(_broken_description(error))
    else:
        if not env.get(JOB_SECRET):
            raise _no_secret(JOB_SECRET)
        try:
            heard, problems = _ask_nodes(options, nodes, env, started, limit_s)
        except KeyboardInterrupt:
            return _INTERRUPTED_STATUS
        reports = merge_reports(heard)
        findings = [*problems, *compare_nodes(reports)]
    seconds = time.monotonic() - started
    print(
        to_json(findings, reports, seconds, limit_s) if options.json else describe_diagnosis(findings, reports, seconds)
    )
    return int(bool(findings))


def _ask_nodes(
    options: argparse.Namespace, nodes: list[ClusterConfig], env: dict[str, str], started: float, limit_s: float
) -> tuple[list[NodeReport], list[Finding]]:
    import secrets
    import socket
    from concurrent.futures import ThreadPoolExecutor

    from tfdist.diagnosis.findings import Finding
    from tfdist.diagnosis.node_process import NodeOptions, NodeProcess

    end = started + limit_s
    running: list[NodeProcess] = []
    reports: list[NodeReport] = []
    findings: list[Finding] = []
    try:
        for node in nodes:
            told = NodeOptions(
                node.to_tf_config(),
                secrets.token_hex(16),
                end - _SETTLE_BEFORE_END_S,
                end - _END_BEFORE_END_S,
                options.script,
                options.checkpoint_dir,
                options.devices,
            )
            running.append(NodeProcess(told, env))
        waiting = ThreadPoolExecutor(len(nodes))  # not in a `with`, which would wait for the threads after Ctrl-C
        ends = list(waiting.map(lambda process: process.finish(end - _KILL_BEFORE_END_S), running))
        for node, (heard, problem) in zip(nodes, ends, strict=True):
            reports += heard
            if problem:
                findings.append(
                    Finding(
                        "doctor",
                        f"{node.task_name} ({socket.gethostname()})",
                        f"the doctor itself failed there: {problem}",
                        f"{sys.executable} -m tfdist.diagnosis, with --time-limit-s={limit_s:g}",
                        "it answers before the time limit",
                        "see whether this Python, its packages and the file systems that it uses answer at all",
                    )
                )
    except BaseException:
        for process in running:
            process.ask_to_end()
        raise
    return reports, findings


def _process_start() -> float:
    """When this process started, by `time.monotonic`: the time limit counts the start of Python, too."""
    now = time.monotonic()
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])  # starttime, the 22nd entry: proc_pid_stat(5)
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return now
    return now - max(age_s, 0.0)


def _own_node() -> ClusterConfig:
    from tfdist.environment import cluster_config

    cluster = cluster_config()
    if cluster.is_local:
        raise ArgumentError(
            describe_problem(
                "There is no cluster to look at",
                received="TF_CONFIG= (nothing, from the environment)",
                expected="TF_CONFIG as the job will have it on this node, or --local N",
                fix="set TF_CONFIG, or try this machine alone with --local 2",
            )
        )
    return cluster


def _local_nodes(count: int) -> list[ClusterConfig]:
    from tfdist.cluster import ClusterConfig
    from tfdist.launching.ports import choose_free_ports

    addresses = tuple(f"127.0.0.1:{port}" for port in choose_free_ports(count))
    return [ClusterConfig({"worker": addresses}, "worker", index, "--local") for index in range(count)]


def _broken_description(error: ClusterConfigError) -> Finding:
    import json
    import socket

    from tfdist.diagnosis.findings import Finding

    return Finding(
        "cluster description",
        f"this node ({socket.gethostname()})",
        "its TF_CONFIG cannot be used, and so it was not compared with the others",
        f"TF_CONFIG={json.dumps(os.environ.get('TF_CONFIG', ''))[:300]} (from the environment)",
        f"a cluster description without these problems: {error}",
        "correct TF_CONFIG there",
    )


def _no_secret(name: str) -> ArgumentError:
    return ArgumentError(
        describe_problem(
            "The nodes have no secret by which to know each other",
            received=f"{name}= (nothing, from the environment)",
            expected="the same random text on all nodes of the job",
            fix=f"make one with: python -c 'import secrets; print(secrets.token_hex(32))', and export it as {name} "
            "on every node",
        )
    )


def _read_limit(text: str) -> float:
    limit_s = read_seconds("--time-limit-s", text, example="10")
    if limit_s < _SMALLEST_LIMIT_S:
        raise ArgumentError(
            describe_problem(
                f"--time-limit-s cannot be {text}",
                received=f"--time-limit-s={text} (from the command line)",
                expected=f"at least {_SMALLEST_LIMIT_S:g} seconds, of which {_SETTLE_BEFORE_END_S:g} are for the end",
                fix="give a number such as --time-limit-s 10",
            )
        )
    return limit_s
