"""Reading checkpoints: which one, and what it holds, checked against its manifest."""

from __future__ import annotations

import os
import tempfile
import zlib
from dataclasses import dataclass
from typing import Any

from absl import logging

from tfdist.checkpointing.manifest import Manifest
from tfdist.checkpointing.naming import STATE, bundle_files, own_prefix, parse_checkpoint_name, record_file
from tfdist.errors import CheckpointError, describe_problem
from tfdist.snapshots.records import decode_record
from tfdist.snapshots.snapshot import Snapshot
from tfdist.snapshots.tensor_files import read_tensors
from tfdist.storage.compression import decompress_file
from tfdist.storage.digests import read_file
from tfdist.storage.files import Files
from tfdist.storage.reading import FoundCheckpoint, find_checkpoints, find_damage, read_checkpoint

__all__ = ["RestoredCheckpoint", "choose_checkpoint", "read_snapshot"]


@dataclass(frozen=True)
class RestoredCheckpoint:
    """A checkpoint that was read.

    Attributes:
        name: The name of its directory.
        manifest: Step, epoch, number of tasks, cluster, versions, metrics, files.
    """

    name: str
    manifest: Manifest
    _files: Files
    _found: FoundCheckpoint
    _is_verified: bool

    @property
    def step(self) -> int:
        """Steps that the state has behind it."""
        return self.manifest.step

    @property
    def epoch(self) -> int:
        """The epoch that training was in, or that is next."""
        return self.manifest.epoch

    @property
    def num_tasks(self) -> int:
        """How many tasks wrote a part of their own."""
        return self.manifest.num_tasks

    def own_of(self, task: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reads the own part of any task that wrote one.

        Args:
            task: Its number, below `num_tasks`.

        Returns:
            Its own tensors and its own record.

        Raises:
            CheckpointError: A file of it is damaged.
        """
        assert 0 <= task < self.num_tasks, task
        return self._read(own_prefix(task))

    def _read(self, prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
        files, path = self._files, self._found.path
        suffix = ".gz" if self.manifest.compression else ""
        bundle = [f"{file}{suffix}" for file in bundle_files(prefix)]
        has_tensors = bundle[0] in self.manifest.files
        read = [record_file(prefix), *(bundle if has_tensors else ())]
        problem = "" if self._is_verified else find_damage(files, self._found, read)
        if problem:
            raise _unusable(os.path.dirname(path), problem, fix="Restore from an older checkpoint.")
        try:
            record = decode_record(read_file(files, f"{path}/{record_file(prefix)}"))
            if not has_tensors:
                return {}, record
            if not suffix:
                return dict(read_tensors(f"{path}/{prefix}")), record
            with tempfile.TemporaryDirectory(prefix="tfdist-checkpoint-") as scratch:
                for file in bundle_files(prefix):
                    decompress_file(files, f"{path}/{file}{suffix}", f"{scratch}/{file}")
                return dict(read_tensors(f"{scratch}/{prefix}")), record
        except (OSError, zlib.error) as error:
            received = f"{path}/{prefix}: {error}"
            raise _unusable(os.path.dirname(path), received, fix="Restore from an older checkpoint.") from error


def choose_checkpoint(files: Files, directory: str) -> tuple[str | None, set[str]]:
    """Finds the newest complete checkpoint whose digests are right.

    Returns:
        Its name, or None if there is no complete checkpoint; and the names of damaged ones that were met.

    Raises:
        CheckpointError: There are complete checkpoints, and none can be used; or one is of a newer format.
        OSError: The directory cannot be read.
    """
    damaged: dict[str, str] = {}
    for found in find_checkpoints(files, directory):
        if not found.is_complete:
            logging.warning("An unfinished checkpoint is passed over: %s", found.problem)
            continue
        if found.is_newer_format:
            raise _unusable(directory, found.problem, fix="Update tfdist, or move that checkpoint away.")
        problem = find_damage(files, found)
        if not problem:
            return str(found.name), set(damaged)
        damaged[str(found.name)] = problem
        logging.warning("A damaged checkpoint is passed over, in favour of an older one: %s", problem)
    if damaged:
        raise _unusable(
            directory,
            "; ".join(damaged.values()),
            fix="Restore the files from a backup, or name an empty directory to train from the start.",
        )
    return None, set()


def read_snapshot(
    files: Files, directory: str, name: str, task: int, *, is_verified: bool = False
) -> tuple[Snapshot, RestoredCheckpoint]:
    """Reads one checkpoint, for one task.

    Args:
        files: The file system.
        directory: The checkpoints' directory.
        name: The checkpoint.
        task: The task's number.
        is_verified: Whether `choose_checkpoint` has just compared all its digests.

    Raises:
        CheckpointError: It is not there, not complete or damaged. The message names the file.
    """
    parsed = parse_checkpoint_name(name)
    if parsed is None:
        raise _unusable(
            directory, f"{name!r} is no name of a checkpoint", fix="Use a name of `tfdist checkpoint list`."
        )
    found = read_checkpoint(files, directory, parsed)
    if found.manifest is None or found.problem:
        raise _unusable(directory, found.problem, fix="Restore from an older checkpoint.")
    restored = RestoredCheckpoint(name, found.manifest, files, found, is_verified)
    tensors, record = restored._read(STATE)
    own_tensors, own_record = restored.own_of(task) if task < restored.num_tasks else ({}, {})
    return Snapshot(tensors, own_tensors, record, own_record), restored


def _unusable(directory: str, received: str, *, fix: str) -> CheckpointError:
    return CheckpointError(
        describe_problem(
            f"No checkpoint of {directory} can be used",
            received=received,
            expected="a complete checkpoint whose files are as they were written",
            fix=fix,
        )
    )
