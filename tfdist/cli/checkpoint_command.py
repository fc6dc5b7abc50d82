"""`tfdist checkpoint`: what a directory of checkpoints holds, whether it is whole, taking a model out, making room."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

from tfdist.cli.options import read_whole_number

_STATUS = "The exit status is 0, 1 when something is damaged or nothing is good, or 2 when DIR cannot be read."
_EXPORT_EPILOG = """The suffix of FILE says what is written: model.keras and model.weights.h5 (both need the model's
configuration in the checkpoint, and no classes of your own), or name.ckpt for the tensors as TensorFlow writes them."""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `tfdist`."""
    parser = commands.add_parser(
        "checkpoint",
        help="list, verify, export or prune the checkpoints of a directory",
        description="Looks after the checkpoints that tfdist.callbacks.FaultTolerantCheckpoint writes.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
        action: argparse.ArgumentParser = actions.add_parser(
            name, help=description, description=f"{description}.", epilog=epilog, allow_abbrev=False
        )
        action.add_argument("directory", metavar="DIR", help="a directory, or a URL such as gs://bucket/ckpt")
        return action

    add("list", "list the checkpoints, the newest first")
    add("verify", "compare every file with its digest", _STATUS)
    export = add("export", "write the weights of a checkpoint as one file", _EXPORT_EPILOG)
    export.add_argument("file", metavar="FILE", help="what to write; it must not exist yet")
    export.add_argument("--checkpoint", metavar="NAME", help="a name that list shows (the newest good one)")
    prune = add("prune", "remove old checkpoints, and what killed saves left", _STATUS)
    prune.add_argument("--keep", metavar="N", required=True, help="how many of the newest good ones to keep")
    prune.add_argument("--damaged", action="store_true", help="remove damaged ones, too")
    prune.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")


def execute(options: argparse.Namespace) -> int:
    """Carries the command out.

    Args:
        options: The parsed arguments.

    Returns:
        The exit status.

    Raises:
        ArgumentError: Something on the command line cannot be used as it is.
    """
    keep = read_whole_number("--keep", options.keep, minimum=1) if options.action == "prune" else 0
    if "://" in options.directory or options.action == "export":
        # What needs TensorFlow runs in a process of its own: this one loads none.
        arguments = [options.action, options.directory]
        if options.action == "export":
            arguments += [options.file, options.checkpoint or ""]
        if options.action == "prune":
            arguments += [str(keep), str(int(options.damaged)), str(int(options.dry_run))]
        return subprocess.run([sys.executable, "-m", "tfdist.snapshots", *arguments], check=False).returncode

    from tfdist.storage.commands import list_checkpoints, prune_checkpoints, verify_checkpoints
    from tfdist.storage.files import LocalFiles

    directory, files = os.path.abspath(options.directory), LocalFiles()
    if options.action == "list":
        return list_checkpoints(files, directory, print)
    if options.action == "verify":
        return verify_checkpoints(files, directory, print)
    return prune_checkpoints(
        files, directory, print, keep=keep, remove_damaged=options.damaged, dry_run=options.dry_run
    )
