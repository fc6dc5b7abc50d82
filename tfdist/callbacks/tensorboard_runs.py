"""The runs of a job under one directory of TensorBoard's, and where a resumed training goes on in them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from absl import logging

from tfdist.callbacks import summaries
from tfdist.callbacks.event_files import EventFile, drop_points

__all__ = ["JOB", "TRAIN", "VALIDATION", "Runs", "server_run", "worker_run"]

TRAIN, VALIDATION, JOB = "train", "validation", "job"
_BY_EPOCH, _BY_EVALUATION = "epoch_", "evaluation_"


def worker_run(worker: str) -> str:
    """The run of a worker such as `worker 1`."""
    return f"workers/{worker.replace(' ', '_').replace('/', '_')}"


def server_run(index: int) -> str:
    """The run of a parameter server."""
    return f"servers/ps_{index}"


def is_by_epoch(tag: str) -> bool:
    """Whether the points of a tag stand at numbers of epochs, and not of steps."""
    return tag.startswith(_BY_EPOCH) or tag.endswith("/histogram")


class Runs:
    """Writes points, and knows how far each kind of them has come.

    Args:
        log_dir: The directory.
        log: Gets the same numbers: a dictionary by run and tag, and the step; or None.

    Attributes:
        step: Steps of training so far: the last points by step stand here.
        epoch: The epoch whose points come next.
        evaluation: The number of updates at the last evaluation that was written; -1 for none.
        is_training: Whether it is within `fit`.
    """

    def __init__(self, log_dir: str, log: Callable[[dict[str, float], int], object] | None) -> None:
        self._log_dir, self._log = log_dir, log
        self._files: dict[str, EventFile] = {}
        weakref.finalize(self, _close_all, self._files)  # at the latest when Python ends
        self._start_at(0, 0, -1)
        self.is_training = self._drops_points = False

    def _start_at(self, step: int, epoch: int, evaluation: int) -> None:
        self.step, self.epoch, self.evaluation = step, epoch, evaluation
        self._start = (step, epoch, evaluation)  # a run may get its first point much later

    def begin(self) -> None:
        """Training begins: with nothing written so far."""
        self.close()
        self._start_at(0, 0, -1)
        self.is_training, self._drops_points = True, False

    def go_on(self, state: Mapping[str, int]) -> None:
        """Training goes on from a checkpoint: what was written after it is going to be written again."""
        self.close()
        self._start_at(int(state["step"]), int(state["epoch"]), int(state["evaluation"]))
        self._drops_points = True

    def go_on_after(self, step: int, epoch: int) -> None:
        """Training goes on from there, and nothing that was written is written again."""
        self._start_at(step, epoch, self.evaluation)

    def take_over(self) -> None:
        """This process goes on with what another one has written up to now, which has ended."""
        self._start_at(self.step, self.epoch, self.evaluation)
        self._drops_points = True

    def state(self) -> dict[str, int]:
        """What `go_on` takes. All points up to here are with the system when it returns."""
        for file in self._files.values():
            file.flush()
        return {"step": self.step, "epoch": self.epoch, "evaluation": self.evaluation}

    def add(self, run: str, summary: Any, step: int) -> None:
        """Writes a summary; nothing for None."""
        if summary is not None:
            self._file(run).add(summary, step)

    def add_scalars(self, run: str, values: Mapping[str, float], step: int) -> None:
        """Writes numbers by tag, and hands them to `log`. What is no single number is left out."""
        numbers = {tag: float(value) for tag, value in values.items() if np.ndim(value) == 0}
        if not numbers:
            return
        self.add(run, summaries.scalars(numbers), step)
        if self._log is not None:
            try:
                self._log({f"{run}/{tag}": value for tag, value in numbers.items()}, self.step)
            except Exception as error:  # a service does not answer, say: training matters more
                logging.warning("`log` is called no more, training goes on: %s: %s", type(error).__name__, error)
                self._log = None

    def end(self) -> None:
        """Training has ended. What follows, as of an evaluation, is added to what there is."""
        self.close()
        self.is_training = self._drops_points = False

    def close(self) -> None:
        """Writes all. Points that follow go to new files."""
        _close_all(self._files)

    def _file(self, run: str) -> EventFile:
        if run not in self._files:
            directory = os.path.join(self._log_dir, run)
            if self._drops_points:
                drop_points(directory, self._is_before)
            start = self._start[0]
            first_step = start + 1 if start else 0
            self._files[run] = EventFile(directory, first_step if self.is_training else None)
        return self._files[run]

    def _is_before(self, tag: str, step: int) -> bool:
        last_step, next_epoch, last_evaluation = self._start
        if is_by_epoch(tag):
            return step < next_epoch
        return step <= (last_evaluation if tag.startswith(_BY_EVALUATION) else last_step)


def _close_all(files: dict[str, EventFile]) -> None:
    for file in files.values():
        file.close()
    files.clear()
