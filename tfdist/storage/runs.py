"""Which process makes the checkpoints of a run, and whether it still lives: what leftovers may be removed."""

from __future__ import annotations

import os
import socket
from typing import Any

from tfdist.checkpointing.naming import CheckpointName, parse_checkpoint_name, parse_run_note_name, run_note_name
from tfdist.checkpointing.sealing import seal, unseal
from tfdist.storage.digests import read_file
from tfdist.storage.files import Files
from tfdist.storage.reading import read_checkpoint
from tfdist.storage.removal import remove_checkpoint

__all__ = ["clean_leftovers", "write_run_note"]

#: A save of which nothing was written for so long, by a process that cannot be looked at from here, is over.
LEFTOVER_AGE_S = 3600.0


def write_run_note(files: Files, directory: str, run: str) -> None:
    """Says that this process makes the checkpoints of a run."""
    files.write(f"{directory}/{run_note_name(run)}", [seal(_this_process())])


def clean_leftovers(
    files: Files, directory: str, *, run: str | None, number: int, now: float, dry_run: bool = False
) -> list[str]:
    """Removes what killed or failed saves left behind, and the notes of past runs of which no checkpoint is there.

    A checkpoint whose manifest was written to its end is no leftover, be it damaged since or not. A leftover of this
    run is one with a lower number than the save that is being made. That of another run is one whose process is gone;
    if that cannot be seen from here (another host, another container), one of which nothing was written for an hour.

    Args:
        files: The file system.
        directory: The checkpoints' directory.
        run: This run; None for a process that makes no checkpoints.
        number: The number of the save that is being made.
        now: The time, in seconds since 1970.
        dry_run: Whether to remove nothing.

    Returns:
        The names of the checkpoints that were (or would be) removed.

    Raises:
        OSError: Something cannot be read or removed.
    """
    entries = files.list_dir(directory)
    names = [name for name in map(parse_checkpoint_name, entries) if name is not None]
    removed = []
    alive: dict[str, bool | None] = {}
    for name in names:
        if name.run == run and name.number >= number:
            continue
        if read_checkpoint(files, directory, name, sizes=False).is_complete:
            continue
        if name.run != run:
            if name.run not in alive:
                alive[name.run] = _is_alive(files, directory, name.run)
            state = alive[name.run]
            if state or (state is None and now - _last_written(files, directory, name) < LEFTOVER_AGE_S):
                continue
        if not dry_run:
            remove_checkpoint(files, f"{directory}/{name}")
        removed.append(str(name))
    if dry_run:
        return removed
    left = {name.run for name in names if str(name) not in removed}
    for entry in entries:
        noted = parse_run_note_name(entry)
        if noted is None or noted == run or noted in left:
            continue
        path = f"{directory}/{entry}"
        state = _is_alive(files, directory, noted)
        if state is False or (state is None and now - files.modified(path) >= LEFTOVER_AGE_S):
            files.remove_file(path)
    return removed


def _last_written(files: Files, directory: str, name: CheckpointName) -> float:
    path = f"{directory}/{name}"
    times = [files.modified(path)]
    for entry in files.list_dir(path):
        try:
            times.append(files.modified(f"{path}/{entry}"))
        except FileNotFoundError:  # it was a temporary one of TensorFlow's
            times.append(float("inf"))
    return max(times)


def _is_alive(files: Files, directory: str, run: str) -> bool | None:
    """Whether a run's process lives; None if that cannot be known here."""
    try:
        note = unseal(read_file(files, f"{directory}/{run_note_name(run)}"))
    except (OSError, ValueError):
        return None
    here = _this_process()
    places = ("host", "boot", "pid_namespace")
    if not here["start"] or any(note.get(place) != here[place] for place in places):
        return None
    return isinstance(note.get("pid"), int) and _start_of(note["pid"]) == note.get("start")


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "boot": _read_text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": _read_link("/proc/self/ns/pid"),
        "pid": os.getpid(),
        "start": _start_of(os.getpid()),
    }


def _start_of(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty if there is none, or if the system does not say."""
    fields = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    # The first of these fields is the state, the third of the whole line; Z and X are processes that have ended.
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _read_text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
