"""Lets the transports be imported without what stands beside them in tfdist.communication, which loads TensorFlow."""

import importlib.util
import sys
import types
from pathlib import Path

if "tfdist.communication" not in sys.modules and importlib.util.find_spec("tensorflow") is None:
    _package = types.ModuleType("tfdist.communication")
    _package.__path__ = [str(Path(__file__).resolve().parents[3] / "tfdist" / "communication")]
    sys.modules["tfdist.communication"] = _package
