"""The store of a training's checkpoints: saving beside training, and reading what was saved."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from tfdist.checkpointing.naming import CheckpointName
from tfdist.checkpointing.retention import CheckpointFacts, Retention
from tfdist.checkpointing.save_problems import SaveProblem, StalledError, describe_failure, kind_of_failure
from tfdist.errors import ArgumentError, describe_problem
from tfdist.snapshots.background import BackgroundWriter
from tfdist.snapshots.reading import RestoredCheckpoint, choose_checkpoint, read_snapshot
from tfdist.snapshots.records import copy_record, encode_record
from tfdist.snapshots.remote_files import locate
from tfdist.snapshots.snapshot import Snapshot
from tfdist.snapshots.writing import Save, commit, metrics_of, report_failed_part, write_own_part, write_state
from tfdist.storage.files import Files
from tfdist.storage.pruning import remove_unkept
from tfdist.storage.removal import remove_checkpoint
from tfdist.storage.runs import clean_leftovers, write_run_note

__all__ = ["CheckpointStore", "new_run"]


def new_run() -> str:
    """The name of a run, drawn at random: 8 hexadecimal digits (a number below 2**32, for an exchange of numbers)."""
    return f"{secrets.randbits(32):08x}"


class CheckpointStore:
    """Writes and reads the checkpoints of one training, in one directory that all its tasks see.

    Nothing that goes wrong while saving is raised: it is logged once per kind, stands in `problems`, and the next save
    tries again. What goes wrong while reading is raised. One thread of the training may use it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        task: int = 0,
        num_tasks: int = 1,
        run: str | None = None,
        retention: Retention | None = None,
        compression: str | None = None,
        cluster: Mapping[str, Any] | None = None,
        part_timeout_s: float = 300.0,
        stall_timeout_s: float = 600.0,
        files: Files | None = None,
    ):
        """Touches no disk.

        Args:
            directory: Where the checkpoints are, a path or a URL that `tf.io.gfile` knows. The first save makes it.
            task: Which of the tasks that write a part this is, from 0; task 0 is the chief.
            num_tasks: How many tasks write a part. Each of them makes the same saves, in the same order.
            run: A name of this run that all tasks have agreed on (see `new_run`); needed where there are several.
            retention: Which checkpoints stay; the chief removes the others after each save.
            compression: None, or `gzip` for the files of tensors (`gunzip` makes of them what TensorFlow reads).
            cluster: JSON values for the manifest: the strategy, the number of replicas, ...
            part_timeout_s: How long the chief waits for the parts of the other tasks, in seconds.
            stall_timeout_s: How long a save, or the end of training, waits for the save before it, in seconds.
            files: The file system, for tests; None for that of the directory.

        Raises:
            ArgumentError: An argument is out of range, or there are several tasks and no run.
        """
        found_files, self._directory = locate(directory)
        self._task = task
        self._num_tasks = num_tasks
        self._run = _checked_run(run, num_tasks)
        self._retention = retention if retention is not None else Retention()
        if compression not in (None, "gzip"):
            raise _not_so("compression", compression, "None or gzip")
        if not 0 <= task < num_tasks:
            raise _not_so("task", task, f"a number from 0 on below num_tasks={num_tasks}")
        self._compression = compression
        self._cluster = dict(cluster or {})
        self._part_timeout_s = part_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._files = files if files is not None else found_files
        self._writer = BackgroundWriter("tfdist-checkpoint")
        self._num_saves = 0
        self._last_step = 0
        self._has_directory = False
        self._has_note = False
        self._is_stalled = False
        self._problems: dict[str, SaveProblem] = {}
        self._last_committed: CheckpointFacts | None = None
        self._last_succeeded = True
        self._damaged: set[str] = set()
        self._verified: str | None = None

    @property
    def directory(self) -> str:
        """Where the checkpoints are."""
        return self._directory

    @property
    def problems(self) -> tuple[SaveProblem, ...]:
        """What has kept checkpoints of this store from being written, by kind."""
        return tuple(self._problems.values())

    @property
    def last_committed(self) -> CheckpointFacts | None:
        """The newest checkpoint that this store has made complete; None on tasks that are not the chief."""
        return self._last_committed

    def save(self, snapshot: Snapshot, *, step: int, epoch: int, wait: bool = False) -> bool:
        """Begins to write a checkpoint. Every task calls it, for the same steps in the same order.

        While an earlier save is in flight, this one waits for it, up to `stall_timeout_s`, after which it gives up (at
        once, as long as that save still hangs). It does not skip a save instead, because tasks finish at different
        moments and would have to agree on what to skip; and because a step that is due is the most that may be lost.

        Args:
            snapshot: The state, of which nothing is changed any more.
            step: Steps that the state has behind it.
            epoch: The epoch that training is in, or that is next.
            wait: Whether to return only when the checkpoint is complete (on the chief) or this task's own part of it
                is on disk (on others).

        Returns:
            Whether the save was begun; with `wait`, whether it succeeded.
        """
        name = CheckpointName(step, self._run, self._num_saves)
        self._num_saves += 1
        self._last_step = step
        try:
            if not self._writer.wait(0.0 if self._is_stalled else self._stall_timeout_s):
                self._is_stalled = True
                raise StalledError(f"the save before is not over, after {self._stall_timeout_s:g} seconds")
            self._is_stalled = False
            save = Save(
                files=self._files,
                directory=self._directory,
                name=name,
                epoch=epoch,
                num_tasks=self._num_tasks,
                compression=self._compression,
                cluster=self._cluster,
                metrics=metrics_of(snapshot.record),
                part_timeout_s=self._part_timeout_s,
            )
            # Records are copied here: they are small, and lists such as a history's go on to grow.
            job = self._make_job(save, snapshot)
        except Exception as error:
            self._note(error, step)
            return False
        self._writer.submit(job)
        return self.wait() if wait else True

    def wait(self) -> bool:
        """Waits for the save that is in flight, up to `stall_timeout_s`.

        Returns:
            Whether none is any more, and the last one succeeded.
        """
        if self._writer.wait(0.0 if self._is_stalled else self._stall_timeout_s):
            return self._last_succeeded
        if not self._is_stalled:
            self._is_stalled = True
            limit = StalledError(f"it is not over after stall_timeout_s={self._stall_timeout_s:g} seconds")
            self._note(limit, self._last_step)
        return False

    def close(self) -> bool:
        """Waits for the save in flight and ends the thread. No save can follow.

        Returns:
            As `wait`.
        """
        succeeded = self.wait()
        self._writer.close()
        failed = sum(problem.count for problem in self._problems.values())
        if failed:
            kinds = ", ".join(f"{problem.kind} ({problem.count})" for problem in self._problems.values())
            logging.warning("%d of %d checkpoints could not be written: %s", failed, self._num_saves, kinds)
        return succeeded

    def choose(self) -> str | None:
        """Chooses what to restore: the newest complete checkpoint all of whose files have the right digests.

        Damaged ones are passed over with a warning that names the file. In a job of several tasks, the chief calls it
        and tells the others the name: tasks that chose for themselves could choose differently.

        Returns:
            A name for `restore`; None if there is no complete checkpoint.

        Raises:
            CheckpointError: There are complete checkpoints, and none can be used; or one is of a newer format.
            OSError: The directory cannot be read.
        """
        chosen, damaged = choose_checkpoint(self._files, self._directory)
        self._damaged |= damaged
        self._verified = chosen
        return chosen

    def restore(self, name: str | None = None) -> tuple[Snapshot, RestoredCheckpoint] | None:
        """Reads a checkpoint, with its mirrored state and this task's own part.

        A task that the checkpoint has no part of gets an empty one; `RestoredCheckpoint.own_of` reads those of all.

        Args:
            name: What `choose` returned, here or on the chief; None to choose here.

        Returns:
            The snapshot, and what else there is to know; None if `name` is None and there is no complete checkpoint.

        Raises:
            CheckpointError: It cannot be used. The message names the file.
            OSError: The directory cannot be read.
        """
        name = name if name is not None else self.choose()
        if name is None:
            return None
        return read_snapshot(self._files, self._directory, name, self._task, is_verified=name == self._verified)

    def _make_job(self, save: Save, snapshot: Snapshot) -> Callable[[], None]:
        record = copy_record(snapshot.record, "record")
        own_record = copy_record(snapshot.own_record, "own_record")

        def job() -> None:
            try:
                if self._task == 0:
                    self._write_as_chief(save, snapshot, encode_record(record), encode_record(own_record))
                else:
                    self._prepare(save)
                    write_own_part(save, self._task, snapshot.own_tensors, encode_record(own_record), tell=True)
            except Exception as error:
                self._last_succeeded = False
                self._note(error, save.name.step)
                self._give_up(save, error)
            else:
                self._last_succeeded = True

        return job

    def _prepare(self, save: Save) -> None:
        if not self._has_directory:
            self._files.make_dirs(self._directory)
            self._has_directory = True
        self._files.make_dir(save.path)

    def _write_as_chief(self, save: Save, snapshot: Snapshot, record: bytes, own_record: bytes) -> None:
        if not self._has_directory:
            self._files.make_dirs(self._directory)
            self._has_directory = True
        if not self._has_note:
            write_run_note(self._files, self._directory, self._run)
            self._has_note = True
        self._clean(save)
        self._prepare(save)
        own = write_own_part(save, 0, snapshot.own_tensors, own_record, tell=False)
        written = own.files | write_state(save, snapshot.tensors, record)
        manifest = commit(save, written)
        self._last_committed = manifest.facts(str(save.name))
        try:
            remove_unkept(
                self._files,
                self._directory,
                self._retention,
                damaged=self._damaged,
                protected=(str(save.name),),
            )
        except OSError as error:
            logging.log_first_n(
                logging.WARNING, "Old checkpoints in %s cannot be removed: %s", 1, save.directory, error
            )

    def _clean(self, save: Save) -> None:
        try:
            removed = clean_leftovers(
                self._files, self._directory, run=self._run, number=save.name.number, now=time.time()
            )
        except OSError as error:
            logging.log_first_n(logging.WARNING, "Leftovers in %s cannot be removed: %s", 1, save.directory, error)
            return
        if removed:
            logging.info("Removed what unfinished saves had left: %s", ", ".join(removed))

    def _give_up(self, save: Save, error: Exception) -> None:
        """Makes room again (if that fails, the next save's cleaning tries once more), and tells a chief that waits."""
        try:
            if self._task == 0:
                remove_checkpoint(self._files, save.path)
            else:
                report_failed_part(save, self._task, error)
        except OSError as second:
            logging.info("%s is left unfinished: %s", save.path, second)

    def _note(self, error: Exception, step: int) -> None:
        kind = kind_of_failure(error)
        known = self._problems.get(kind)
        if known is not None:
            self._problems[kind] = SaveProblem(kind, known.step, known.message, known.count + 1)
            return
        message = describe_failure(error, directory=self._directory, step=step)
        self._problems[kind] = SaveProblem(kind, step, message, 1)
        logging.warning("%s", message)


def _checked_run(run: str | None, num_tasks: int) -> str:
    if run is None:
        if num_tasks != 1:
            raise _not_so("run", run, f"a name that all of num_tasks={num_tasks} tasks have agreed on")
        return new_run()
    if not re.fullmatch(r"[0-9a-f]{1,16}", run):
        raise _not_so("run", run, "1 to 16 hexadecimal digits, as new_run() makes them")
    return run


def _not_so(name: str, value: object, expected: str) -> ArgumentError:
    return ArgumentError(
        describe_problem(
            f"{name} cannot be {value!r}",
            received=f"{name}={value!r} (from the argument)",
            expected=expected,
            fix="see tfdist.snapshots.CheckpointStore",
        )
    )
