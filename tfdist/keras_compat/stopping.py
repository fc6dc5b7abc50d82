"""Ending `fit` together when a callback asks for it on one worker only."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfdist.keras_compat.agreement import any_worker
from tfdist.keras_compat.step_logs import has_batch_hooks

__all__ = ["stop_together"]

#: Keras's own callbacks whose batch hooks stop training on no worker, or on all alike, since all see the same logs.
_ALIKE = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.History,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.TerminateOnNaN,
)


def _may_stop_at_a_batch(callback: keras.callbacks.Callback) -> bool:
    return type(callback) not in _ALIKE and has_batch_hooks(callback, "fit")


def stop_together(strategy: tf.distribute.Strategy, callbacks: list[Any]) -> keras.callbacks.Callback:
    """Makes the callback that comes last on every worker. Collective.

    It asks the other workers at the end of every epoch; at the end of every step only when a worker has a callback of
    the user's own with batch hooks, since only that could stop training there.

    Args:
        strategy: The strategy of the model.
        callbacks: This worker's other callbacks.
    """
    every_step = any_worker(strategy, any(map(_may_stop_at_a_batch, callbacks)))
    return (_StopAfterAnyStep if every_step else _StopAfterEpoch)(strategy)


class _StopAfterEpoch(keras.callbacks.Callback):
    """Stops training on all workers when one of them asks for it, at the end of an epoch."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__()
        self._strategy = strategy

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Agrees on whether to stop."""
        self.model.stop_training = any_worker(self._strategy, self.model.stop_training)


class _StopAfterAnyStep(_StopAfterEpoch):
    """The same at the end of every step, too."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Agrees on whether to stop."""
        self.model.stop_training = any_worker(self._strategy, self.model.stop_training)
