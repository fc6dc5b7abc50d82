"""Tensors on disk in TensorFlow's own checkpoint format, which `tf.train.load_checkpoint` reads without tfdist.

It keeps a checksum (crc32c) of each tensor, which is looked at whenever the tensor is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfdist.snapshots.remote_files import os_errors

__all__ = ["read_tensors", "write_tensors"]

# Checkpoints are read and written on the host, whatever devices and servers the program has.
_HOST = "CPU:0"


def write_tensors(prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes tensors to `<prefix>.index` and `<prefix>.data-00000-of-00001`.

    TensorFlow's kernel runs without Python's lock.

    Raises:
        OSError: They cannot be written.
        TypeError: A value is no tensor that can be saved.
    """
    names = sorted(tensors)
    with os_errors(), tf.device(_HOST):
        values = [_as_tensor(name, tensors[name]) for name in names]
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)


def read_tensors(prefix: str) -> dict[str, tf.Tensor]:
    """Reads all tensors of a prefix, as eager tensors on the host.

    Raises:
        OSError: They cannot be read, or a checksum is not right.
    """
    with os_errors(), tf.device(_HOST):
        dtypes = tf.compat.v1.train.NewCheckpointReader(prefix).get_variable_to_dtype_map()
        names = sorted(dtypes)
        values = tf.raw_ops.RestoreV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            dtypes=[dtypes[name] for name in names],
        )
    return dict(zip(names, values, strict=True))


def _as_tensor(name: str, value: Any) -> tf.Tensor:
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} of type {type(value).__name__} is no tensor: {error}") from error
