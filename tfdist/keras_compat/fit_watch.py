"""What a callback that saves and resumes a `fit` is told beyond Keras's hooks, and where the trainer tells it.

Keras calls the hooks of callbacks one after another, so no hook of one callback sees a state in which all others have
taken in the same step. The places here do: before an epoch's hooks, before a step is taken, and when `fit` is over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras

from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.private_names import initial_epoch, set_initial_epoch

if TYPE_CHECKING:
    from tfdist.keras_compat.input_position import WatchedEpochs

__all__ = ["FitCall", "FitWatcher", "claim_input", "current_watcher", "find_watcher", "watched", "watching"]


@dataclasses.dataclass(frozen=True)
class FitCall:
    """One call of `fit`.

    Attributes:
        model: The model.
        epochs: Its argument `epochs`.
        callbacks: The callbacks that it was given, in their order.
    """

    model: Any
    epochs: int
    callbacks: tuple[Any, ...]


class FitWatcher(keras.callbacks.Callback):
    """A callback that is told of a `fit` where all callbacks are in step. At most one may watch a `fit`.

    It has no batch hooks, so it makes no step wait for logs.
    """

    def before_fit(self, call: FitCall) -> None:
        """Before Keras's `fit` begins. Under a multi-worker strategy all workers are here."""

    def before_epoch(self) -> None:
        """Before the hooks `on_epoch_begin`, and in the first epoch after all `on_train_begin`."""

    def before_steps(self, epochs: WatchedEpochs) -> None:
        """After the hooks `on_epoch_begin` of all callbacks, before the epoch's first step."""

    def before_step(self, epochs: WatchedEpochs) -> None:
        """Before every call of the train function, after the hooks of the step before it."""

    def resumed_logs(self) -> dict[str, Any] | None:
        """The logs of the epoch, where it was resumed and no step was left of it."""
        return None

    def after_fit(self) -> None:
        """When Keras's `fit` has returned."""

    def after_error(self, error: BaseException) -> None:
        """When it has raised instead."""

    def leave_fit(self) -> None:
        """At last, however `fit` ended."""


class _PerThread(threading.local):
    watcher: FitWatcher | None = None
    is_input_claimed = True


_per_thread = _PerThread()


def current_watcher() -> FitWatcher | None:
    """The watcher of the `fit` that this thread is in; `None` in an `evaluate` or `predict` within it."""
    return _per_thread.watcher


def claim_input() -> tuple[FitWatcher | None, bool]:
    """The watcher and True, once in a `fit`: for the first epoch iterator, which is that of the training data."""
    if _per_thread.is_input_claimed:
        return None, False
    _per_thread.is_input_claimed = True
    return _per_thread.watcher, True


def find_watcher(callbacks: list[Any]) -> FitWatcher | None:
    """The watcher among callbacks.

    Raises:
        ArgumentError: There are several.
    """
    found = [callback for callback in callbacks if isinstance(callback, FitWatcher)]
    if len(found) > 1:
        raise ArgumentError(
            describe_problem(
                "Only one callback can save and resume a fit",
                received=f"callbacks={[type(callback).__name__ for callback in found]} (from the call of fit)",
                expected="at most one of them",
                fix="Leave one out.",
            )
        )
    return found[0] if found else None


@contextlib.contextmanager
def watching(watcher: FitWatcher | None, *, has_training_data: bool = False) -> Iterator[None]:
    """Makes `watcher` the one that is told, for the block, in which the first input may be that of training."""
    before = _per_thread.watcher, _per_thread.is_input_claimed
    _per_thread.watcher, _per_thread.is_input_claimed = watcher, not has_training_data
    try:
        yield
    finally:
        _per_thread.watcher, _per_thread.is_input_claimed = before


@contextlib.contextmanager
def watched(watcher: FitWatcher | None, call: FitCall, *, has_training_data: bool) -> Iterator[None]:
    """Tells a watcher of the begin and end of Keras's `fit`, which runs in the block."""
    if watcher is None:
        with watching(None, has_training_data=has_training_data):
            yield
        return
    epoch = initial_epoch(call.model)
    try:
        watcher.before_fit(call)
        try:
            with watching(watcher, has_training_data=has_training_data):
                yield
        except BaseException as error:
            watcher.after_error(error)
            raise
        watcher.after_fit()
    finally:
        set_initial_epoch(call.model, epoch)
        watcher.leave_fit()
