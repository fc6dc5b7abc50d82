"""`tfdist report`: where the time of a job went."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdist.errors import ArgumentError, describe_problem

if TYPE_CHECKING:
    from tfdist.launching.time_accounting import TimeReport


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `tfdist`."""
    parser = commands.add_parser(
        "report",
        help="say where the time of a job went",
        description="Reads the event log that `tfdist run --log-dir DIR` leaves, and says where the time of the last "
        "job in it went: training, exchanges, saves, restarts, ..., which sum to the wall-clock time.",
    )
    parser.add_argument("directory", metavar="DIR", help="the directory of logs")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> int:
    """Carries the command out.

    Raises:
        ArgumentError: There is no event log to read.
    """
    from tfdist.cluster.job_events import LOG_NAME, parse_event
    from tfdist.launching.time_accounting import account

    path = Path(options.directory) / LOG_NAME
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise _no_log(options.directory, str(error)) from error
    events = [event for event in map(parse_event, lines) if event is not None]
    report = account(events)
    if report is None:
        raise _no_log(options.directory, f"{len(lines)} lines, none of which says that a job started")
    print(json.dumps(dataclasses.asdict(report)) if options.json else _table(report))
    return 0


def _no_log(directory: str, problem: str) -> ArgumentError:
    return ArgumentError(
        describe_problem(
            "There is no event log of a job",
            received=f"DIR={directory} (from the command line): {problem}",
            expected="a directory that was given to `tfdist run --log-dir`",
            fix="name that directory",
        )
    )


def _table(report: TimeReport) -> str:
    from tfdist.launching.time_accounting import PARTS

    attempts = "1 attempt" if report.num_attempts == 1 else f"{report.num_attempts} attempts"
    status = "still running" if report.status is None else f"status {report.status}"
    lines = [f"{report.wall_s:.1f} s, {attempts}, {status}", ""]
    for part, seconds in report.parts.items():
        share = seconds / report.wall_s if report.wall_s > 0 else 0.0
        lines.append(f"{part:14} {seconds:9.1f} s {share:6.1%}  {PARTS[part]}")
    lines.append(f"{'sum':14} {sum(report.parts.values()):9.1f} s")
    for recovery in report.recoveries:
        when = datetime.datetime.fromtimestamp(recovery.unix_time).strftime("%H:%M:%S")
        lost = "" if recovery.seconds is None else f", {recovery.seconds:.1f} s lost"
        lines.append(f"{when} recovery of tier {recovery.tier}{lost}: {recovery.cause}")
    return "\n".join(lines)
