"""The steps by which a checkpoint comes to be complete (docs/design/checkpoints.md).

Each task writes its own part and tells the chief with a part file. The chief writes what all have alike, waits for the
other parts, and writes the manifest last. No step of TensorFlow's collectives is taken: this runs beside training.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

import tfdist
from tfdist.checkpointing.manifest import FileFacts, Manifest, Part, comparable_metrics, parse_part
from tfdist.checkpointing.naming import (
    MANIFEST,
    STATE,
    CheckpointName,
    bundle_files,
    own_prefix,
    part_file,
    record_file,
)
from tfdist.checkpointing.save_problems import FailedPartError
from tfdist.checkpointing.sealing import TornError, seal, unseal
from tfdist.errors import TimeLimitError, describe_problem
from tfdist.snapshots.tensor_files import write_tensors
from tfdist.storage.compression import compress_file
from tfdist.storage.digests import file_facts, read_file
from tfdist.storage.files import Files

__all__ = ["Save", "commit", "metrics_of", "report_failed_part", "write_own_part", "write_state"]

_POLL_S = 0.05


@dataclass(frozen=True)
class Save:
    """A save that is being made.

    Attributes:
        files: The file system.
        directory: The checkpoints' directory, which is there.
        name: The checkpoint's name.
        epoch: For the manifest.
        num_tasks: How many tasks write a part.
        compression: `gzip` or None.
        cluster: For the manifest.
        metrics: For the manifest.
        part_timeout_s: How long the chief waits for the parts of others, in seconds.
    """

    files: Files
    directory: str
    name: CheckpointName
    epoch: int
    num_tasks: int
    compression: str | None
    cluster: Mapping[str, Any]
    metrics: Mapping[str, float]
    part_timeout_s: float

    @property
    def path(self) -> str:
        """The checkpoint's directory."""
        return f"{self.directory}/{self.name}"


def write_state(save: Save, tensors: Mapping[str, Any], record: bytes) -> dict[str, FileFacts]:
    """Writes what all tasks have alike. The chief's.

    Returns:
        The files, which are on disk.
    """
    return _write_prefix(save, STATE, tensors, record)


def write_own_part(save: Save, task: int, tensors: Mapping[str, Any], record: bytes, *, tell: bool) -> Part:
    """Writes a task's own part.

    Args:
        save: The save.
        task: The task's number.
        tensors: Its own tensors.
        record: Its own record.
        tell: Whether to write a part file for the chief.

    Returns:
        The part, which is on disk.
    """
    part = Part(task, _write_prefix(save, own_prefix(task), tensors, record))
    save.files.sync_dir(save.path)
    if tell:
        save.files.write(f"{save.path}/{part_file(task)}", [seal(part.to_json())])
        save.files.sync_dir(save.path)
    return part


def report_failed_part(save: Save, task: int, error: Exception) -> None:
    """Tells the chief that this task's part does not come, so that it need not wait until its limit.

    Raises:
        OSError: That cannot be written either.
    """
    for file in save.files.list_dir(save.path):
        if file.startswith((f"{own_prefix(task)}.", part_file(task))):
            save.files.remove_file(f"{save.path}/{file}")
    part = Part(task, {}, f"{type(error).__name__}: {error}")
    save.files.write(f"{save.path}/{part_file(task)}", [seal(part.to_json())])


def commit(save: Save, written: Mapping[str, FileFacts]) -> Manifest:
    """Waits for the parts of the others, and makes the checkpoint complete. The chief's.

    Args:
        save: The save.
        written: The files that the chief wrote.

    Raises:
        TimeLimitError: A part did not come within the limit.
        FailedPartError: A task says that its part does not come.
        OSError: A file is not what its task says, or something cannot be written.
    """
    files = dict(written)
    for part in _await_parts(save):
        for file, facts in part.files.items():
            size_bytes = save.files.size_bytes(f"{save.path}/{file}")
            if size_bytes != facts.size_bytes:
                raise OSError(f"{file} of task {part.task} has {size_bytes} bytes here, {facts.size_bytes} there")
        files |= part.files
    manifest = Manifest(
        step=save.name.step,
        epoch=save.epoch,
        time=time.time(),
        num_tasks=save.num_tasks,
        files=files,
        metrics=dict(save.metrics),
        cluster=dict(save.cluster),
        versions={"tfdist": tfdist.__version__, "keras": keras.__version__, "tensorflow": tf.__version__},
        compression=save.compression,
    )
    save.files.sync_dir(save.path)
    save.files.write(f"{save.path}/{MANIFEST}", [seal(manifest.to_json())])
    save.files.sync_dir(save.path)
    save.files.sync_dir(save.directory)
    return manifest


def metrics_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a record by which retention may go."""
    return comparable_metrics(record.get("metrics"))


def _write_prefix(save: Save, prefix: str, tensors: Mapping[str, Any], record: bytes) -> dict[str, FileFacts]:
    names = [record_file(prefix)]
    save.files.write(f"{save.path}/{names[0]}", [record])
    if tensors:
        write_tensors(f"{save.path}/{prefix}", tensors)
        for file in bundle_files(prefix):
            path = f"{save.path}/{file}"
            if save.compression is None:
                save.files.sync_file(path)
                names.append(file)
            else:
                compress_file(save.files, path, f"{path}.gz")
                save.files.remove_file(path)
                names.append(f"{file}.gz")
    return {name: file_facts(save.files, f"{save.path}/{name}") for name in names}


def _await_parts(save: Save) -> list[Part]:
    missing = {task: part_file(task) for task in range(1, save.num_tasks)}
    parts = []
    limit = time.monotonic() + save.part_timeout_s
    while missing:
        there = set(save.files.list_dir(save.path))
        for task in [task for task, file in missing.items() if file in there]:
            try:
                part = parse_part(unseal(read_file(save.files, f"{save.path}/{missing[task]}")))
            except TornError:  # it is being written
                continue
            if part.problem:
                raise FailedPartError(f"task {part.task} could not write its part: {part.problem}")
            parts.append(part)
            del missing[task]
        if missing and time.monotonic() > limit:
            tasks = ", ".join(f"task {task}" for task in missing)
            raise TimeLimitError(
                describe_problem(
                    f"The checkpoint of step {save.name.step} waited for its parts",
                    received=f"no part of {tasks} within {save.part_timeout_s:g} seconds, in {save.path}",
                    expected=f"a part of each of the {save.num_tasks} tasks within part_timeout_s",
                    fix="Look at that task's log; let all tasks see the directory, or raise part_timeout_s.",
                )
            )
        if missing:
            time.sleep(_POLL_S)
    return parts
