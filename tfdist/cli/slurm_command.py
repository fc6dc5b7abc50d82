"""`tfdist slurm`: prints the batch script of a job, and runs nothing."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from tfdist.cli.options import add_program, program_command, read_option_number

_EPILOG = """example:
  tfdist slurm --nodes 2 --workers-per-node 2 --time 01:00:00 train.py > job.sh
  sbatch job.sh
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `tfdist`."""
    parser = commands.add_parser(
        "slurm",
        help="print a batch script for Slurm",
        description="Prints a file for sbatch that trains on several nodes: saves before the time limit and goes to "
        "the queue again, and starts a failed step again. It runs nothing.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--nodes", metavar="N", required=True, help="how many nodes")
    option("--workers-per-node", metavar="N", default="1", help="workers on each node (1)")
    option("--gpus-per-worker", metavar="N", default="0", help="GPUs of each worker (none)")
    option("--cpus-per-worker", metavar="N", help="cores of each worker (Slurm's choice)")
    option("--time", metavar="LIMIT", help="time limit of the job, such as 01:00:00 (the partition's)")
    option("--save-before-s", metavar="S", default="120", help="save so many seconds before the time limit (120)")
    option("--max-restarts", metavar="N", default="3", help="starts of a step again in which a task has failed (3)")
    option("--name", default="tfdist", help="name of the job (tfdist)")
    option("--option", action="append", default=[], metavar="OPTION", help="a further option of sbatch; repeatable")
    option("--python", default="python", help="the Python of the nodes (python)")
    add_program(parser)


def execute(options: argparse.Namespace) -> int:
    """Carries the command out.

    Raises:
        ArgumentError: An option cannot be used.
    """
    from tfdist.launching.batch_script import BatchJob, format_batch_script

    number = functools.partial(read_option_number, options)
    # Another Python than this one may be that of the nodes.
    _, *command = program_command(options.module, options.program, "tfdist slurm")
    job = BatchJob(
        nodes=number("nodes", minimum=1),
        workers_per_node=number("workers-per-node", minimum=1),
        command=[options.python, *command],
        name=options.name,
        time_limit=options.time,
        save_before_s=number("save-before-s", minimum=1),
        gpus_per_worker=number("gpus-per-worker", minimum=0),
        cpus_per_worker=number("cpus-per-worker", minimum=1) if options.cpus_per_worker else None,
        max_restarts=number("max-restarts", minimum=0),
        options=options.option,
    )
    print(format_batch_script(job), end="")
    return 0
