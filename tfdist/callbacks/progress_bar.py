"""One progress bar for the whole job."""

from __future__ import annotations

import datetime
import time
from typing import Any

import keras
import numpy as np

from tfdist.balancing import COLUMNS
from tfdist.keras_compat.managed_strategies import exchange_of, is_chief, is_managed, is_parameter_server
from tfdist.keras_compat.private_names import model_strategy

__all__ = ["ProgressBar"]

_ROWS = COLUMNS.index("rows")
_SMOOTHING_S = 2.0


class ProgressBar(keras.callbacks.ProgbarLogger):
    """Keras's progress bar from the chief, with the examples a second of all workers; the other workers are silent.

    Between epochs it says how much time is left, if all epochs take as long as the last one with its validation.

    Every worker makes it, whatever `verbose` it gives to `fit`; with `verbose=0` nothing is shown. Metrics that the bar
    shows are put together every 50 steps (`TFDIST_LOG_INTERVAL_STEPS`). Under parameter servers, and without a strategy
    of tfdist's, examples a second are not known within an epoch and not shown.

    Attributes:
        needs_timings: Always: steps tell of their rows.
        reads_batch_logs: Never.
    """

    def __init__(self) -> None:
        super().__init__()
        self.needs_timings = True
        self.reads_batch_logs = False
        self._num_rows, self._rate = 0.0, 0.0
        self._since = time.monotonic()
        self._epoch_began: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins to count. Only the chief's bar shows anything."""
        self._epoch_began = None
        self._stop_counting()
        strategy = model_strategy(self.model)
        if is_managed(strategy) and not is_chief(strategy):
            self.verbose = 0
        if is_managed(strategy) and not is_parameter_server(strategy):
            exchange_of(strategy).timings.observers.append(self._count)
        super().on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins a bar, below the time that is left if all epochs take as long as the last one."""
        now = time.monotonic()
        if self._epoch_began is not None and self.verbose and self.epochs:
            left = round((now - self._epoch_began) * (self.epochs - epoch))
            print(f"About {datetime.timedelta(seconds=left)} left for {self.epochs - epoch} of {self.epochs} epochs")
        self._num_rows, self._rate, self._since, self._epoch_began = 0.0, 0.0, now, now
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Moves the bar on."""
        elapsed_s = time.monotonic() - self._since
        if self._num_rows and (not self._rate or elapsed_s > _SMOOTHING_S):
            self._rate = self._num_rows / max(elapsed_s, 1e-9)
            if elapsed_s > _SMOOTHING_S:
                self._num_rows, self._since = 0.0, time.monotonic()
        rate = {"examples_per_s": self._rate} if self._rate else {}
        super().on_train_batch_end(batch, {**(logs or {}), **rate})

    def on_train_end(self, logs: Any = None) -> None:
        """Counts no more."""
        self._stop_counting()
        super().on_train_end(logs)

    def _count(self, table: np.ndarray[Any, Any]) -> None:
        self._num_rows += float(table[:, _ROWS].sum())

    def _stop_counting(self) -> None:
        strategy = model_strategy(self.model)
        if is_managed(strategy):
            observers = exchange_of(strategy).timings.observers
            observers[:] = [observer for observer in observers if observer != self._count]
