"""The command: measures what was asked for, round by round, and writes the report."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.group import measure
from benchmarks.machine import describe_machine, heading
from benchmarks.plan import PROFILES, REFERENCE, SECTIONS, Choice, plan_case_groups
from benchmarks.scaling import predict_cases, report_scaling
from benchmarks.summary import summarize
from benchmarks.tables import report, to_json
from benchmarks.workloads import WORKLOADS

__all__ = ["main"]


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measures tfdist beside its peers.")
    option = parser.add_argument
    option("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to measure (all)")
    option("--models", nargs="+", choices=tuple(WORKLOADS), help="models to train (those of the profile)")
    option("--workers", nargs="+", type=int, help="numbers of workers (1 2 4; with --quick 2)")
    option("--participants", nargs="+", metavar="WORD", help="only participants whose name has one of these words")
    option("--rounds", type=int, help="how often the participants take turns (5; with --middle 3, with --quick 1)")
    profile = parser.add_mutually_exclusive_group()
    profile.add_argument("--quick", action="store_true", help="whether everything works, not how fast it is")
    profile.add_argument("--middle", action="store_true", help="less than everything, in about half an hour")
    option("--time-limit-s", type=float, default=240.0, help="limit of a participant's round (240)")
    option("--out", type=Path, default=Path("build/benchmarks"), help="directory of the report (build/benchmarks)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 if a participant of tfdist's failed."""
    options = _parse(arguments)
    profile = PROFILES["quick" if options.quick else "middle" if options.middle else "full"]
    rounds = options.rounds or profile.rounds
    cores = len(os.sched_getaffinity(0))
    choice = Choice(options.only, profile, options.models, options.workers, cores)
    machine = describe_machine()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    command = f"python -m benchmarks {shlex.join(arguments if arguments is not None else sys.argv[1:])}"
    runs: list[dict[str, Any]] = []

    def write() -> str:
        more = {"scaling": report_scaling(runs, cores)}
        text = report(summarize(runs, REFERENCE), heading(machine, date, rounds, command), REFERENCE, more)
        options.out.mkdir(parents=True, exist_ok=True)
        head = {"date": date, "command": command, "rounds": rounds, "machine": machine}
        (options.out / "benchmarks.json").write_text(to_json(head, runs))
        (options.out / "benchmarks.md").write_text(text)
        return text

    for group in plan_case_groups(choice):
        for number in range(rounds):
            for one in group:
                if options.participants and not any(word in one.participant for word in options.participants):
                    continue
                start = time.monotonic()
                result = measure(one, options.time_limit_s)
                entry = {"section": one.section, "case": one.case, "participant": one.participant, "round": number}
                runs.append({**entry, **result})
                said = result.get("error") or "measured"
                where = f"{one.section}: {one.case}: {one.participant}, round {number + 1} of {rounds}"
                print(f"{where}: {said} [{time.monotonic() - start:.0f} s]", file=sys.stderr, flush=True)
                write()  # so that an interrupted run leaves what it has
    print(write())
    if importlib.util.find_spec("matplotlib") is not None:
        from benchmarks.plots import plot

        plot(summarize(runs, REFERENCE), predict_cases(runs, cores), options.out)
    print(f"Written to {options.out}")
    return int(any("error" in run and run["participant"].startswith("tfdist") for run in runs))
