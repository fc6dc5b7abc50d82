"""Distributed training for Keras 3 on TensorFlow.

The public names are loaded when they are first used, so that `import tfdist` loads no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdist import callbacks, errors
    from tfdist.cluster import ClusterConfig
    from tfdist.environment import cluster_config
    from tfdist.keras_compat.losses import scale_loss
    from tfdist.recording.verify import verify
    from tfdist.running import run
    from tfdist.strategies import (
        auto_strategy,
        mirrored_strategy,
        multi_worker_mirrored_strategy,
        parameter_server_strategy,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "auto_strategy",
    "mirrored_strategy",
    "multi_worker_mirrored_strategy",
    "parameter_server_strategy",
    "run",
    "scale_loss",
    "verify",
    "ClusterConfig",
    "callbacks",
    "cluster_config",
    "errors",
    "__version__",
]

_MODULE_OF = {
    "auto_strategy": "tfdist.strategies",
    "mirrored_strategy": "tfdist.strategies",
    "multi_worker_mirrored_strategy": "tfdist.strategies",
    "parameter_server_strategy": "tfdist.strategies",
    "run": "tfdist.running",
    "scale_loss": "tfdist.keras_compat.losses",
    "verify": "tfdist.recording.verify",
    "ClusterConfig": "tfdist.cluster",
    "cluster_config": "tfdist.environment",
}


def __getattr__(name: str) -> Any:
    if name in ("callbacks", "errors"):
        return importlib.import_module(f"tfdist.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tfdist' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
