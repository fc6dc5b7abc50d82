"""The callbacks whose cost is measured, beside a `fit` that has none but Keras's History.

A callback of tfdist's own is one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["CALLBACKS", "NO_CALLBACK", "OWN_CALLBACKS", "PROGRESS_BAR"]

NO_CALLBACK, PROGRESS_BAR = "none but History", "progress bar (verbose=1)"


def _reader_of_batch_logs(keras: Any, _: Path) -> list[Any]:
    class ReadsLogs(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.last_loss = float(logs["loss"])

    return [ReadsLogs()]


def _checkpoint(_: Any, directory: Path) -> list[Any]:
    from tfdist.callbacks import FaultTolerantCheckpoint

    return [FaultTolerantCheckpoint(directory.parent / "checkpoints", save_each_epoch=False)]


def _load_balance_monitor(_: Any, __: Path) -> list[Any]:
    from tfdist.callbacks import LoadBalanceMonitor

    return [LoadBalanceMonitor()]


def _distributed_tensorboard(_: Any, directory: Path) -> list[Any]:
    from tfdist.callbacks import DistributedTensorBoard

    return [DistributedTensorBoard(directory.parent / "logs")]


#: By what the table calls them, functions of keras and of an empty directory of the worker's own.
CALLBACKS: dict[str, Callable[[Any, Path], list[Any]]] = {
    NO_CALLBACK: lambda _keras, _directory: [],
    PROGRESS_BAR: lambda _keras, _directory: [],
    "EarlyStopping": lambda keras, _: [keras.callbacks.EarlyStopping("loss", patience=1000)],
    "ReduceLROnPlateau": lambda keras, _: [keras.callbacks.ReduceLROnPlateau("loss", patience=1000)],
    "TensorBoard": lambda keras, directory: [keras.callbacks.TensorBoard(str(directory))],
    "FaultTolerantCheckpoint, no save due": _checkpoint,
    "LoadBalanceMonitor": _load_balance_monitor,
    "DistributedTensorBoard": _distributed_tensorboard,
    "own on_train_batch_end that reads logs": _reader_of_batch_logs,
}
#: Those of tfdist's, of which each is measured in turns in one process, too.
OWN_CALLBACKS = ("FaultTolerantCheckpoint, no save due", "LoadBalanceMonitor", "DistributedTensorBoard")
