"""Runs the probes of one kind of strategy: `run_probes.py --on multi --out DIR`.

Writes `DIR/<label>.<task>.json` with what each scenario came to with everything installed and without its override.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

PASSES = "passes"


@contextlib.contextmanager
def taken_away(label, *, stock):
    """Without one override, or without all."""
    from tfdist.keras_compat import installation

    if stock:
        installation.uninstall()
        try:
            yield
        finally:
            installation.install()
        return
    [override] = [o for o in installation.all_overrides() if o.label == label]
    replaced = vars(override.owner)[override.name]
    original = installation._originals[label]
    if original is None:
        delattr(override.owner, override.name)
    else:
        setattr(override.owner, override.name, original)
    try:
        yield
    finally:
        setattr(override.owner, override.name, replaced)


def attempt(probe, strategy, directory):
    import keras

    directory.mkdir(parents=True, exist_ok=True)
    os.environ["PROBE_DIRECTORY"] = str(directory)
    keras.utils.set_random_seed(1)
    try:
        probe.run(strategy)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return PASSES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=["mirrored", "multi", "ps"], required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--labels", default="")
    options = parser.parse_args()

    import tensorflow as tf

    import tfdist

    if options.on == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        strategy = tfdist.mirrored_strategy()
    elif options.on == "multi":
        strategy = tfdist.multi_worker_mirrored_strategy()
    else:
        splits = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=32, max_shards=2)
        strategy = tfdist.parameter_server_strategy(variable_partitioner=splits)
    from probe_scenarios import PROBES

    task = tfdist.cluster_config().task_name.replace(" ", "-")
    chosen = [
        p
        for p in PROBES.values()
        if p.on == options.on and p.label in (options.labels.split(",") if options.labels else PROBES)
    ]
    results = {p.label: {"installed": attempt(p, strategy, options.out / f"{p.label}.installed")} for p in chosen}
    for p in chosen:
        print(f"without {p.label}", flush=True)
        with taken_away(p.label, stock=p.stock):
            results[p.label]["without"] = attempt(p, strategy, options.out / f"{p.label}.without")
        (options.out / f"{p.label}.{task}.json").write_text(json.dumps(results[p.label]))
    sys.stdout.flush()
    os._exit(0)  # collectives that failed on purpose may keep an orderly end waiting


if __name__ == "__main__":
    import tfdist

    tfdist.run(main)
