"""What `tfdist checkpoint list`, `verify` and `prune` do, on any file system."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfdist.checkpointing.retention import Retention
from tfdist.errors import ArgumentError, describe_problem
from tfdist.storage.files import Files
from tfdist.storage.pruning import unkept_checkpoints
from tfdist.storage.reading import FoundCheckpoint, find_checkpoints, find_damage
from tfdist.storage.removal import remove_checkpoint
from tfdist.storage.runs import clean_leftovers

__all__ = ["list_checkpoints", "prune_checkpoints", "verify_checkpoints"]

_SOMETHING_IS_WRONG = 1
_HEADER = ("checkpoint", "step", "epoch", "saved (UTC)", "size", "tasks", "state")


def list_checkpoints(files: Files, directory: str, say: Callable[[str], None]) -> int:
    """Prints a table of the checkpoints, the newest first. Looks at manifests and sizes, not at digests.

    Returns:
        The exit status.

    Raises:
        ArgumentError: There is no such directory.
    """
    rows = [_HEADER, *(_row(found) for found in _found(files, directory))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        first, *numbers, last = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        say("  ".join([first.strip().ljust(widths[0]), *numbers, last.strip()]))
    return 0


def verify_checkpoints(files: Files, directory: str, say: Callable[[str], None]) -> int:
    """Compares every file of every complete checkpoint with its digest, and prints what is found.

    Returns:
        The exit status: 1 if a complete checkpoint is damaged, or if none is usable.

    Raises:
        ArgumentError: There is no such directory.
    """
    num_good = num_damaged = 0
    for found in _found(files, directory):
        problem = find_damage(files, found)
        if found.manifest is not None and not problem:
            num_good += 1
            say(f"{found.name}: good ({len(found.manifest.files)} files, {_size(found.manifest.size_bytes)})")
        else:
            num_damaged += found.is_complete
            say(f"{found.name}: {'damaged' if found.is_complete else 'unfinished'}: {problem}")
    say(f"{num_good} good, {num_damaged} damaged")
    return 0 if num_good and not num_damaged else _SOMETHING_IS_WRONG


def prune_checkpoints(
    files: Files, directory: str, say: Callable[[str], None], *, keep: int, remove_damaged: bool, dry_run: bool
) -> int:
    """Removes all but the newest good checkpoints, and what dead saves left.

    Every file is compared with its digest first, so that a damaged checkpoint never counts as one that is kept.

    Args:
        files: The file system.
        directory: The checkpoints' directory.
        say: Prints a line.
        keep: How many to keep.
        remove_damaged: Whether damaged ones go, too.
        dry_run: Whether to say only what would be done.

    Returns:
        The exit status: 1 if none is good, whereupon nothing is removed.

    Raises:
        ArgumentError: There is no such directory.
    """
    word = "would remove" if dry_run else "removed"
    found_there = _found(files, directory)
    damaged = {str(found.name): found for found in found_there if found.is_complete and find_damage(files, found)}
    good = [found for found in found_there if found.is_complete and str(found.name) not in damaged]
    if not good:
        say("no checkpoint is good; nothing is removed")
        return _SOMETHING_IS_WRONG
    for found in unkept_checkpoints(good, Retention(keep_newest=keep)):
        if not dry_run:
            remove_checkpoint(files, found.path)
        say(f"{word} {found.name}")
    for found in damaged.values():
        if remove_damaged and not found.is_newer_format:
            if not dry_run:
                remove_checkpoint(files, found.path)
            say(f"{word} {found.name}, which is damaged")
        else:
            say(f"left {found.name}, which is damaged: {find_damage(files, found)}")
    for name in clean_leftovers(files, directory, run=None, number=0, now=time.time(), dry_run=dry_run):
        say(f"{word} {name}, which was not finished")
    for found in good[:keep]:
        say(f"kept {found.name}")
    return 0


def _found(files: Files, directory: str) -> list[FoundCheckpoint]:
    if not files.is_dir(directory):
        raise ArgumentError(
            describe_problem(
                "There is no such directory of checkpoints",
                received=f"DIR={directory} (from the command line)",
                expected="the directory that FaultTolerantCheckpoint was given",
                fix="look for a typing error",
            )
        )
    return find_checkpoints(files, directory)


def _row(found: FoundCheckpoint) -> tuple[str, ...]:
    manifest = found.manifest
    if manifest is None:
        return (str(found.name), str(found.name.step), "", "", "", "", _state(found))
    metrics = " ".join(f"{name}={value:.4g}" for name, value in sorted(manifest.metrics.items()))
    return (
        str(found.name),
        str(manifest.step),
        str(manifest.epoch),
        time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(manifest.time)),
        _size(manifest.size_bytes),
        str(manifest.num_tasks),
        f"{_state(found)}  {metrics}".rstrip(),
    )


def _state(found: FoundCheckpoint) -> str:
    if not found.is_complete:
        return "unfinished"
    return f"damaged: {found.problem}" if found.problem else "complete"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e5 else f"{size_bytes} B"
