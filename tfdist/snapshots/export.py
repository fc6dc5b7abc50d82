"""Taking the weights out of a checkpoint: as a Keras model or weights file, or as TensorFlow's checkpoint."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from tfdist.errors import ArgumentError, CheckpointError, describe_problem
from tfdist.snapshots.reading import choose_checkpoint, read_snapshot
from tfdist.snapshots.snapshot import Snapshot
from tfdist.snapshots.tensor_files import write_tensors
from tfdist.storage.files import Files

__all__ = ["export_checkpoint"]

_SUFFIXES = (".keras", ".weights.h5", ".ckpt")


def export_checkpoint(files: Files, directory: str, target: str, *, name: str | None = None) -> None:
    """Writes the weights of a checkpoint.

    A model is made from its configuration with Keras's safe mode: code that a checkpoint might hold is not run.

    Args:
        files: The file system of the checkpoints.
        directory: The checkpoints' directory.
        target: A local path whose suffix says what to write; nothing may be there yet.
        name: The checkpoint; None for the newest good one.

    Raises:
        ArgumentError: The target is in the way, or its suffix says nothing.
        CheckpointError: There is no such checkpoint, it is damaged, or no model can be made of it.
        OSError: The target cannot be written.
    """
    suffix = next((suffix for suffix in _SUFFIXES if target.endswith(suffix)), None)
    if suffix is None or "://" in target:
        raise _cannot_write(target, f"a local path that ends in {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}")
    if any(os.path.exists(path) for path in (target, f"{target}.index")):
        raise _cannot_write(target, "a path where nothing is yet")
    name = name if name is not None else choose_checkpoint(files, directory)[0]
    if name is None:
        raise CheckpointError(
            describe_problem(
                "There is no checkpoint to export",
                received=f"DIR={directory} (from the command line)",
                expected="a directory with a complete checkpoint",
                fix="see what tfdist checkpoint list shows",
            )
        )
    snapshot, _ = read_snapshot(files, directory, name, 0)
    parent = os.path.dirname(os.path.abspath(target))
    with tempfile.TemporaryDirectory(dir=parent, prefix=".tfdist-export-") as scratch:
        made = f"{scratch}/{os.path.basename(target)}"
        if suffix == ".ckpt":
            write_tensors(made, snapshot.tensors)
        else:
            model = _make_model(snapshot, name)
            (model.save if suffix == ".keras" else model.save_weights)(made)
        for file in os.listdir(scratch):
            os.replace(f"{scratch}/{file}", f"{parent}/{file}")
    print(f"{target}: the weights of {name}")


def _make_model(snapshot: Snapshot, name: str) -> Any:
    import keras

    config, names = snapshot.record.get("model_config"), snapshot.record.get("weight_names")
    if not isinstance(config, str) or not isinstance(names, list):
        raise _no_model(name, "no configuration of the model (a subclassed model has none)")
    try:
        model = keras.models.model_from_json(config)
        model.set_weights([snapshot.tensors[weight].numpy() for weight in names])
    except Exception as error:  # Keras raises many kinds for what it cannot make
        raise _no_model(name, f"{type(error).__name__}: {error}") from error
    return model


def _no_model(name: str, received: str) -> CheckpointError:
    return CheckpointError(
        describe_problem(
            f"No model can be made of {name} alone",
            received=received,
            expected="the configuration of a Sequential or functional model, without classes of your own",
            fix="export a .ckpt, or build the model in Python and let FaultTolerantCheckpoint restore it",
        )
    )


def _cannot_write(target: str, expected: str) -> ArgumentError:
    return ArgumentError(
        describe_problem(
            "FILE cannot be written",
            received=f"FILE={target} (from the command line)",
            expected=expected,
            fix="name another file",
        )
    )
