"""What the commands share: reading numbers, the program to run, and the environment."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping

from tfdist.errors import ArgumentError, describe_problem

__all__ = [
    "add_program",
    "check_environment",
    "program_command",
    "program_words",
    "read_option_number",
    "read_seconds",
    "read_whole_number",
]


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds what to run, to the end of a command line."""
    option = parser.add_argument
    option("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module as python -m does")
    option("program", metavar="SCRIPT", nargs=argparse.REMAINDER, help="the script, and its arguments")


def program_words(module: list[str] | None, program: list[str], command: str) -> list[str]:
    """What is to follow `python`, whether it is here or not.

    Args:
        module: What follows `-m`, if it was given.
        program: SCRIPT and its arguments.
        command: The command, such as `tfdist run`, for messages.

    Raises:
        ArgumentError: There is nothing to run.
    """
    if module:
        return ["-m", *module]
    words = program[1:] if program[:1] == ["--"] else program
    if not words:
        raise ArgumentError(
            describe_problem(
                "There is no script to run",
                received=f"-m={module!r} (from the command line)" if module == [] else "SCRIPT= (nothing)",
                expected=f"{command} [options] SCRIPT, or -m MODULE",
                fix="add the script's path",
            )
        )
    return words


def program_command(module: list[str] | None, program: list[str], command: str) -> tuple[str, ...]:
    """The command that runs what the user named.

    Args:
        module: What follows `-m`, if it was given.
        program: SCRIPT and its arguments.
        command: The command, such as `tfdist run`, for messages.

    Raises:
        ArgumentError: There is nothing to run, or it cannot be run.
    """
    from tfdist.launching.program import build_module_command, build_script_command

    words = program_words(module, program, command)
    if module:
        return build_module_command(module[0], module[1:])
    return build_script_command(words[0], words[1:])


def read_option_number(options: argparse.Namespace, name: str, *, minimum: int) -> int:
    """Reads the whole number of an option such as `workers-per-node` from a parsed command line.

    Raises:
        ArgumentError: It is none, or below `minimum`.
    """
    return read_whole_number(f"--{name}", getattr(options, name.replace("-", "_")), minimum=minimum)


def read_whole_number(name: str, text: str, *, minimum: int) -> int:
    """Reads the whole number of an option.

    Raises:
        ArgumentError: It is none, or below `minimum`.
    """
    digits = text.removeprefix("-")
    value = int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 9 else None
    if value is None or value < minimum:
        raise ArgumentError(
            describe_problem(
                f"{name} cannot be {text}",
                received=f"{name}={text} (from the command line)",
                expected=f"a whole number, at least {minimum}",
                fix=f"give a number such as {name} {max(minimum, 1)}",
            )
        )
    return value


def read_seconds(name: str, text: str, *, unit: str = "a number of seconds", example: str = "300") -> float:
    """Reads the positive number of an option.

    Raises:
        ArgumentError: It is none, or not above 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ArgumentError(
            describe_problem(
                f"{name} cannot be {text}",
                received=f"{name}={text} (from the command line)",
                expected=f"{unit} above 0",
                fix=f"give a number such as {name} {example}",
            )
        )
    return value


def check_environment(env: Mapping[str, str], command: str) -> None:
    """Raises `ArgumentError` when the environment describes a cluster of its own."""
    text = env.get("TF_CONFIG", "").strip()
    if text not in ("", "{}"):
        raise ArgumentError(
            describe_problem(
                f"TF_CONFIG is set, and {command} would override it: it describes a cluster of its own to every task",
                received=f"TF_CONFIG={text} (from the environment)",
                expected="no TF_CONFIG",
                fix="unset TF_CONFIG for a job on this machine, or run the script with python, without tfdist",
            )
        )
