"""Callbacks for `fit`. They are loaded, and TensorFlow with them, when they are first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdist.callbacks.fault_tolerant_checkpoint import FaultTolerantCheckpoint

__all__ = ["FaultTolerantCheckpoint"]

_MODULE_OF = {"FaultTolerantCheckpoint": "tfdist.callbacks.fault_tolerant_checkpoint"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tfdist.callbacks' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
