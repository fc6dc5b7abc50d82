"""Runs many cases in one process: `run_cases.py --strategy multi --cases a,b,c --out DIR`.

For each case writes `DIR/<case>.<task>.npz`, or `DIR/<case>.<task>.error` with the traceback. Ends with status 3 after
a case that failed, because a failed collective may have broken the strategy; the caller starts the rest anew.
Run it by hand to debug a case:

    python tests/matrix/run_cases.py --strategy mirrored --cases sequential --out /tmp/out
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

STOPPED_AFTER_FAILURE = 3


def make_strategy(kind):
    """The strategy and the name of this task."""
    import tensorflow as tf

    import tfdist

    if kind == "single":
        return tf.distribute.get_strategy(), "single"
    if kind == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        return tfdist.mirrored_strategy(), "mirrored"
    if kind == "multi":
        config = tfdist.cluster_config()
        return tfdist.multi_worker_mirrored_strategy(), f"worker-{config.worker_index}"
    if kind == "elastic":
        return tfdist.multi_worker_mirrored_strategy(), os.environ["TFDIST_TASK"].replace(" ", "-")
    return tfdist.parameter_server_strategy(), "chief"


def run_one(case, strategy, task, out, first_seed):
    """Returns whether the case came to its end, or to the clear error that is right there."""
    import keras
    import numpy as np
    import tensorflow as tf

    from tfdist.errors import TfdistError

    directory = out / f"{case.name}.files"
    directory.mkdir(exist_ok=True)
    os.environ["MATRIX_CASE_DIRECTORY"] = str(directory)
    keras.backend.clear_session()
    keras.config.set_floatx(case.floatx)
    if case.seed is None:
        tf.random.set_seed(first_seed)
    else:
        keras.utils.set_random_seed(case.seed)
    try:
        found = case.run(strategy)
    except Exception as error:
        (out / f"{case.name}.{task}.error").write_text(traceback.format_exc())
        return isinstance(error, TfdistError) and bool(case.errors)
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
    temporary = out / f"{case.name}.{task}.part"
    with temporary.open("wb") as file:
        np.savez(file, **{name: np.asarray(value) for name, value in found.items()})
    temporary.rename(out / f"{case.name}.{task}.npz")
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=["single", "mirrored", "multi", "elastic", "ps"], required=True)
    parser.add_argument("--cases", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    import tensorflow as tf
    from table import all_cases

    strategy, task = make_strategy(options.strategy)
    first_seed = tf.compat.v1.get_seed(None)[0]
    table = all_cases()
    for name in options.cases.split(","):
        print(f"case {name}", flush=True)
        right = run_one(table[name], strategy, task, options.out, first_seed)
        if not right:
            # Skip tf.distribute's orderly end, which may wait for a peer that is stuck.
            sys.stdout.flush()
            os._exit(STOPPED_AFTER_FAILURE)
    print("all cases done", flush=True)


if __name__ == "__main__":
    import tfdist

    with contextlib.suppress(KeyboardInterrupt):
        tfdist.run(main)
