"""Callbacks for `fit`. They are loaded, and TensorFlow with them, when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdist.callbacks.distributed_tensorboard import DistributedTensorBoard
    from tfdist.callbacks.fault_tolerant_checkpoint import FaultTolerantCheckpoint
    from tfdist.callbacks.load_balance_monitor import LoadBalanceMonitor
    from tfdist.callbacks.progress_bar import ProgressBar

__all__ = ["DistributedTensorBoard", "FaultTolerantCheckpoint", "LoadBalanceMonitor", "ProgressBar"]

_MODULE_OF = {
    "DistributedTensorBoard": "tfdist.callbacks.distributed_tensorboard",
    "FaultTolerantCheckpoint": "tfdist.callbacks.fault_tolerant_checkpoint",
    "LoadBalanceMonitor": "tfdist.callbacks.load_balance_monitor",
    "ProgressBar": "tfdist.callbacks.progress_bar",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tfdist.callbacks' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
