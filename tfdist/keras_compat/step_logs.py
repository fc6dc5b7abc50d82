"""The logs of synchronous steps, put together from all replicas when somebody reads them.

A step leaves the states of its metrics on the replica, and its other logs as sums over the replica's rows. Putting them
together costs an exchange that all workers take part in, so they do it after the same steps: at the end of every epoch;
after every step where a callback on any worker reads the logs of batches; after every `TFDIST_LOG_INTERVAL_STEPS` (50)
steps where only a progress bar shows them. In between, callbacks see the last logs that were put together.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.agreement import numbers_of_all_workers
from tfdist.keras_compat.managed_strategies import elastic_group

__all__ = ["LOG_INTERVAL_STEPS", "StepLogs", "agree_on_interval", "current_interval", "has_batch_hooks", "logs_every"]

LOG_INTERVAL_STEPS = "TFDIST_LOG_INTERVAL_STEPS"
_DEFAULT_INTERVAL_STEPS = 50
_BATCH_HOOKS = {
    "fit": ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end"),
    "evaluate": ("on_test_batch_begin", "on_test_batch_end"),
}
#: Keras's callbacks that have batch hooks and need no logs of every batch: the progress bar shows what there is.
_READ_NONE = (keras.callbacks.BackupAndRestore, keras.callbacks.ProgbarLogger)
#: Those that look at the logs of batches if they are told so.
_MAY_READ: dict[type, Callable[[Any], bool]] = {
    keras.callbacks.ModelCheckpoint: lambda callback: callback.save_freq != "epoch",
    keras.callbacks.TensorBoard: lambda callback: callback.update_freq != "epoch",
}


class _PerThread(threading.local):
    interval: int | None = 1


_per_thread = _PerThread()


def current_interval() -> int | None:
    """After how many steps logs are put together: 1 outside of `fit` and `evaluate`; `None`: at the epoch's end."""
    return _per_thread.interval


@contextlib.contextmanager
def logs_every(interval: int | None) -> Iterator[None]:
    """Sets what `current_interval` returns within the block."""
    before = _per_thread.interval
    _per_thread.interval = interval
    try:
        yield
    finally:
        _per_thread.interval = before


def has_batch_hooks(callback: keras.callbacks.Callback, method: str) -> bool:
    """Whether a callback does anything at the begin or end of a batch of `fit` or `evaluate`."""

    def has(hook: str) -> bool:  # a LambdaCallback has them on the instance
        return hook in vars(callback) or getattr(type(callback), hook) is not getattr(keras.callbacks.Callback, hook)

    return any(map(has, _BATCH_HOOKS[method]))


def _reads_batch_logs(callback: keras.callbacks.Callback, method: str) -> bool:
    if type(callback) in _READ_NONE:
        return False
    says: bool | None = getattr(callback, "reads_batch_logs", None)  # the project's own do
    if says is not None:
        return says
    if type(callback) in _MAY_READ:
        return _MAY_READ[type(callback)](callback)
    return has_batch_hooks(callback, method)


def agree_on_interval(
    strategy: tf.distribute.Strategy, method: str, callbacks: list[Any], shows_progress: bool
) -> int | None:
    """Agrees on `current_interval` for a call of `fit` or `evaluate`. Collective.

    Args:
        strategy: The strategy of the model.
        method: `fit` or `evaluate`.
        callbacks: This worker's callbacks.
        shows_progress: Whether this worker shows a progress bar.
    """
    if elastic_group(strategy) is not None:
        return 1  # what a lost worker's metrics hold would be lost with it
    reads = any(_reads_batch_logs(callback, method) for callback in callbacks)
    readers, showers = numbers_of_all_workers(strategy, [int(reads), int(shows_progress)]).max(axis=0)
    if readers:
        return 1
    return _interval_steps() if showers else None


def _interval_steps() -> int:
    text = os.environ.get(LOG_INTERVAL_STEPS, str(_DEFAULT_INTERVAL_STEPS))
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentError(
            describe_problem(
                "The interval of batch logs is not a number of steps",
                received=f"{LOG_INTERVAL_STEPS}={text!r} (from the environment)",
                expected="a whole number of steps, at least 1, and the same on every worker",
                fix=f"Set {LOG_INTERVAL_STEPS}=50, or leave it out.",
            )
        )
    return int(text)


class StepLogs(dict[str, Any]):
    """The logs as they were last put together, in Keras's place for the logs of a step.

    Args:
        values: The logs.
        put_together: Puts together those after the last step. Collective.
    """

    def __init__(self, values: dict[str, Any], put_together: Callable[[], StepLogs]) -> None:
        super().__init__(values)
        self._put_together = put_together

    def final(self) -> StepLogs:
        """Returns the logs after the last step. Collective."""
        return self._put_together()
