"""Some steps under TensorFlow's profiler, the same ones on all workers that take part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tfdist.callbacks.tensorboard_runs import worker_run
from tfdist.keras_compat.managed_strategies import is_managed, worker_position
from tfdist.keras_compat.private_names import model_strategy

__all__ = ["ProfiledSteps"]


class ProfiledSteps:
    """Starts and stops the profiler. In synchronous training all workers are at the same step.

    Args:
        log_dir: Each worker's profile goes to its run there.
        steps: The first and the last one, from 1.
        workers: Which workers take part, by index; None for all.
    """

    def __init__(self, log_dir: str, steps: tuple[int, int], workers: Sequence[int] | None) -> None:
        self._log_dir, (self._first, self._last), self._workers = log_dir, steps, workers
        self._is_running = False

    def before_step(self, step: int, model: Any) -> None:
        """Starts it if the step is the first one."""
        strategy = model_strategy(model)
        worker = worker_position(strategy)[0] if is_managed(strategy) else 0
        if step != self._first or self._is_running or not (self._workers is None or worker in self._workers):
            return
        try:
            tf.profiler.experimental.start(os.path.join(self._log_dir, worker_run(f"worker {worker}")))
            self._is_running = True
        except (tf.errors.OpError, OSError) as error:  # as when somebody else profiles
            logging.warning("No profile is made: %s", error)

    def after_step(self, step: int) -> None:
        """Stops it if the step was the last one."""
        if step >= self._last:
            self.stop()

    def stop(self) -> None:
        """Stops it if it runs, and writes the profile."""
        if self._is_running:
            self._is_running = False
            try:
                tf.profiler.experimental.stop()
            except (tf.errors.OpError, OSError) as error:
                logging.warning("The profile could not be written: %s", error)
