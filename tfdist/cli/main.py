"""The entry point of the command `tfdist`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from tfdist import __version__
from tfdist.cli import (
    checkpoint_command,
    doctor_command,
    kubernetes_command,
    report_command,
    run_command,
    slurm_command,
    verify_command,
)
from tfdist.errors import ArgumentError, TfdistError, describe_problem

_USAGE_ERROR_STATUS = 2
_COMMANDS: dict[str, ModuleType] = {
    "run": run_command,
    "verify": verify_command,
    "checkpoint": checkpoint_command,
    "doctor": doctor_command,
    "report": report_command,
    "slurm": slurm_command,
    "kubernetes": kubernetes_command,
}


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints have tfdist's shape."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(
            describe_problem(
                "The command line cannot be understood",
                received=f"{message} (from the command line)",
                expected=" ".join(self.format_usage().split()).removeprefix("usage: "),
                fix=f"see {self.prog} --help",
            )
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        argv: The arguments without the program's name; None for those of this process.

    Returns:
        The exit status: 2 for a command that cannot be carried out as it is.
    """
    parser = _Parser(prog="tfdist", description="Distributed training for Keras 3 on TensorFlow.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"tfdist {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in _COMMANDS.values():
        command.add_parser(commands)
    try:
        options = parser.parse_args(argv)
        if options.command is None:
            parser.print_help()
            return 0
        status: int = _COMMANDS[options.command].execute(options)
        return status
    except TfdistError as error:
        print(f"tfdist: {error}", file=sys.stderr)
        return _USAGE_ERROR_STATUS


if __name__ == "__main__":
    sys.exit(main())
