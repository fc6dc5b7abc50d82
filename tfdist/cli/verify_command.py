"""`tfdist verify`: whether a script trains on several workers as it does on one device."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tfdist.cli.options import add_program, check_environment, program_command, read_seconds, read_whole_number

_USAGE = """tfdist verify [options] SCRIPT [arguments of the script]
       tfdist verify [options] -m MODULE [arguments of the module]"""
_EPILOG = """The script is run three times, up to its first model.fit, of which the first steps are recorded: on the
replicas, and twice on one device, from the same weights and on the same rows. Its callbacks (but for learning rate
schedules) and validation data are left out. The exit status is 0, 1 when something differs, that of a run that failed
(2 if that is 1), or 2 when nothing could be compared."""
_DIFFERS_STATUS = 1
_RUNS = ("replicas", "single", "again")


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `tfdist`."""
    parser = commands.add_parser(
        "verify",
        help="compare the first steps of a training script on several replicas with one device",
        description="Compares losses, metrics, gradients and weights of a script's first steps on several replicas "
        "with those on one device, and names what differs first and the likely cause.",
        usage=_USAGE,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("--workers", metavar="N", default="2", help="how many workers, each a replica (2)")
    option("--mirrored", metavar="N", help="instead of workers: one process with N logical CPU devices")
    option("--steps", metavar="K", default="5", help="how many steps to compare (5)")
    option("--tolerance", metavar="T", default="1e-5", help="relative difference that counts as rounding (1e-5)")
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
    from tfdist.cluster.job_environment import VerifyEnvironment
    from tfdist.launching.executor import run_job
    from tfdist.launching.hangs import HangRules
    from tfdist.launching.job_options import JobOptions
    from tfdist.launching.lifecycle import LifecycleRules
    from tfdist.launching.restarts import RestartPolicy

    workers = read_whole_number("--workers", options.workers, minimum=2)
    local = 1
    if options.mirrored is not None:
        workers, local = 1, read_whole_number("--mirrored", options.mirrored, minimum=2)
    steps = read_whole_number("--steps", options.steps, minimum=1)
    tolerance = read_seconds("--tolerance", options.tolerance, unit="a number", example="1e-5")
    program = program_command(options.module, options.program, "tfdist verify")
    check_environment(os.environ, "tfdist verify")
    # program: python -u SCRIPT ... or python -u -m MODULE ...
    command = (*program[:2], "-m", "tfdist.recording.script", *program[2:])
    with tempfile.TemporaryDirectory(prefix="tfdist-verify-") as directory:
        for run in _RUNS:
            count = workers if run == _RUNS[0] else 1
            place = f"{workers} workers" if workers > 1 else f"{local} logical devices"
            print(f"tfdist verify: run {run!r} on {place if run == _RUNS[0] else 'one device'}", file=sys.stderr)
            plan = VerifyEnvironment(run, directory, steps, local)
            env = {**os.environ, **plan.to_env(), "CUDA_VISIBLE_DEVICES": "-1"}
            job = JobOptions(
                command=command,
                workers=count,
                fewest_workers=None,
                meeting=None,
                parameter_servers=0,
                evaluator=False,
                log_dir=None,
                num_threads=None,
                rules=LifecycleRules(),
                hangs=HangRules(),
                restarts=RestartPolicy(),
            )
            status = run_job(job, env)
            if status != 0:
                return status if status != _DIFFERS_STATUS else 2
            if not list(Path(directory).glob(f"{run}-*")):  # the comparison says so
                break
        compare = [sys.executable, "-m", "tfdist.verification", directory, repr(tolerance)]
        return subprocess.run(compare, check=False).returncode
