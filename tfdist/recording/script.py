"""A process of `tfdist verify SCRIPT`: runs the script with its first `fit` recorded, and ends it after that.

`python -m tfdist.recording.script SCRIPT arguments...`, or `-m MODULE arguments...`.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import keras

from tfdist.cluster.job_environment import VerifyEnvironment, parse_verify_environment
from tfdist.keras_compat.installation import install
from tfdist.keras_compat.private_names import TensorFlowTrainer
from tfdist.recording.child import make_local_devices
from tfdist.recording.recorded_fit import recorded_fit
from tfdist.verification.record import AGAIN, REPLICAS

__all__ = ["main"]

_SEED = 1


def main(arguments: list[str]) -> None:
    """Runs a script. Does not come back from its first `fit`."""
    plan = parse_verify_environment(os.environ)
    assert plan is not None, "only tfdist verify starts this"
    if plan.run == REPLICAS and plan.local_replicas > 1:
        make_local_devices(plan.local_replicas)
    # Before any tensor: MultiWorkerMirroredStrategy must come first. The script may set another seed.
    keras.utils.set_random_seed(_SEED + (plan.run == AGAIN))
    install(is_chief=False)
    _record_first_fit(plan)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def _record_first_fit(plan: VerifyEnvironment) -> None:
    original = TensorFlowTrainer.fit

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        TensorFlowTrainer.fit = original
        recorded_fit(original, self, plan, *args, **kwargs)
        raise SystemExit(0)

    TensorFlowTrainer.fit = fit


if __name__ == "__main__":
    main(sys.argv[1:])
