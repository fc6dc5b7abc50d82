"""`tfdist run`: starts a script as every task of a cluster on this machine."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdist.cli.options import add_program, check_environment, program_command, read_seconds, read_whole_number
from tfdist.errors import ArgumentError, describe_problem

if TYPE_CHECKING:
    from tfdist.launching.hangs import HangRules
    from tfdist.launching.meeting import Meeting

_USAGE = """tfdist run [options] SCRIPT [arguments of the script]
       tfdist run [options] -m MODULE [arguments of the module]"""
_EPILOG = """Whatever follows SCRIPT or MODULE belongs to it. The exit status is 0, that of the first task that failed
(128 + the signal if one killed it), 130 after Ctrl-C, 143 after SIGTERM (75 where training
saved a checkpoint and ended for it), or 2 for an unusable command."""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `tfdist`."""
    parser = commands.add_parser(
        "run",
        help="run a training script on this machine as one or several processes",
        description="Runs a training script on this machine as every task of a cluster: the same file, no edit.",
        usage=_USAGE,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("--workers", metavar="N", default="1", help="how many workers (1); MIN:MAX for an elastic job")
    option("--ps", metavar="M", default="0", help="how many parameter servers; adds a chief that coordinates (0)")
    option("--nodes", metavar="MIN:MAX", help="how many nodes run this command, for an elastic job on several machines")
    option("--rendezvous", metavar="HOST:PORT", help="where they meet: an address of one of them")
    option("--job", metavar="NAME", default="", help="the job's name: nodes of another one are turned away")
    option("--evaluator", action="store_true", help="add a task that evaluates beside training")
    option("--log-dir", metavar="DIR", help="also write the output of each task to a file there, such as worker-1.log")
    option("--start-timeout-s", metavar="S", default="300", help="how long the last task may connect after the first")
    option("--max-restarts", metavar="K", default="0", help="how many failures to start the job again after (0)")
    option("--max-preemptions", metavar="P", help="how many preemptions to start it again after (as --max-restarts)")
    option("--evaluator-grace-s", metavar="S", default="600", help="how long the evaluator may go on after training")
    option("--stop-grace-s", metavar="S", default="30", help="how long tasks may take to end (and save) when asked to")
    option(
        "--hang-timeout-s",
        metavar="S",
        default="auto",
        help="no progress for S seconds is a hang (auto: learned; 0: none)",
    )
    option("--threads-per-task", metavar="T", help="threads of each task (the cores divided between the workers)")
    add_program(parser)


def execute(options: argparse.Namespace) -> int:
    """Carries the command out.

    Args:
        options: The parsed arguments.

    Returns:
        The exit status.

    Raises:
        ArgumentError: Something on the command line or in the environment cannot be used as it is.
    """
    from tfdist.launching.executor import run_job
    from tfdist.launching.job_options import JobOptions
    from tfdist.launching.lifecycle import LifecycleRules
    from tfdist.launching.restarts import RestartPolicy

    threads = options.threads_per_task
    fewest, workers = _read_workers(options)
    meeting = _read_meeting(options)
    if meeting is not None:
        fewest = 1  # of this node
    job_options = JobOptions(
        workers=workers,
        fewest_workers=fewest,
        meeting=meeting,
        parameter_servers=read_whole_number("--ps", options.ps, minimum=0),
        evaluator=options.evaluator,
        num_threads=None if threads is None else read_whole_number("--threads-per-task", threads, minimum=1),
        rules=LifecycleRules(
            start_timeout_s=read_seconds("--start-timeout-s", options.start_timeout_s),
            evaluator_grace_s=read_seconds("--evaluator-grace-s", options.evaluator_grace_s),
            stop_grace_s=read_seconds("--stop-grace-s", options.stop_grace_s),
        ),
        hangs=_read_hangs(options.hang_timeout_s, sees_all_tasks=meeting is None),
        restarts=RestartPolicy(
            max_restarts=read_whole_number("--max-restarts", options.max_restarts, minimum=0),
            max_preemptions=read_whole_number(
                "--max-preemptions", options.max_preemptions or options.max_restarts, minimum=0
            ),
        ),
        command=program_command(options.module, options.program, "tfdist run"),
        log_dir=_log_dir(options.log_dir),
    )
    check_environment(os.environ, "tfdist run")
    return run_job(job_options, os.environ)


def _read_workers(options: argparse.Namespace) -> tuple[int | None, int]:
    """Reads N, or MIN:MAX, of `--workers`."""
    few, colon, many = options.workers.partition(":")
    if not colon:
        return None, read_whole_number("--workers", options.workers, minimum=1)
    fewest = read_whole_number("--workers", few, minimum=1)
    most = read_whole_number("--workers", many, minimum=fewest)
    if options.evaluator or options.ps != "0":
        raise ArgumentError(
            describe_problem(
                "An elastic job has workers only",
                received=f"--workers={options.workers}, --ps={options.ps}"
                f"{', --evaluator' if options.evaluator else ''} (from the command line)",
                expected="--workers MIN:MAX without --ps and --evaluator",
                fix="leave those out, or give a fixed number of workers",
            )
        )
    return fewest, most


def _read_meeting(options: argparse.Namespace) -> Meeting | None:
    """Reads `--nodes` and `--rendezvous`."""
    from tfdist.cluster.address import check_address
    from tfdist.cluster.problems import Problems
    from tfdist.launching.meeting import Meeting

    if options.nodes is None and options.rendezvous is None:
        return None
    if not options.nodes or not options.rendezvous or ":" in options.workers or options.evaluator or options.ps != "0":
        raise ArgumentError(
            describe_problem(
                "The nodes of a job cannot be told from the command line",
                received=f"--nodes={options.nodes}, --rendezvous={options.rendezvous}, --workers={options.workers}, "
                f"--ps={options.ps}{', --evaluator' if options.evaluator else ''} (from the command line)",
                expected="--nodes MIN:MAX, --rendezvous HOST:PORT, and --workers N, the workers of each node",
                fix="give the same of these on every node, without --ps and --evaluator",
            )
        )
    problems = Problems("the command line")
    check_address("--rendezvous", options.rendezvous, problems)
    problems.raise_if_any()
    few, colon, many = options.nodes.partition(":")
    fewest = read_whole_number("--nodes", few, minimum=1)
    most = read_whole_number("--nodes", many, minimum=fewest) if colon else fewest
    return Meeting(options.rendezvous, options.job, fewest, most)


def _read_hangs(text: str, *, sees_all_tasks: bool) -> HangRules:
    from tfdist.launching.hangs import HangRules

    limit_s: float | None = None if text == "auto" else 0.0
    if text not in ("auto", "0"):
        limit_s = read_seconds("--hang-timeout-s", text, unit="auto, 0, or a number of seconds", example="120")
    return HangRules(limit_s, sees_all_tasks=sees_all_tasks)


def _log_dir(text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError("it is not writable")
    except OSError as error:
        raise ArgumentError(
            describe_problem(
                f"The log directory cannot be used: {error}",
                received=f"--log-dir={text} (from the command line)",
                expected="a directory to write to, or a path where one can be made",
                fix="name another directory",
            )
        ) from error
    return path
