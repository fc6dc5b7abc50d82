"""The state of a training at one step, as copied from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """A copy of a training's state. Nobody may write to what it holds any more.

    Tensors are NumPy arrays or eager tensors of any dtype that TensorFlow saves: `tf.string`, `tf.bfloat16`, and the
    `tf.variant` of `tf.raw_ops.SerializeIterator` too. Eager tensors are better for large ones: to make one of an array
    holds Python's lock while its bytes are copied. A restored snapshot holds eager tensors.

    Records hold JSON values: strings, numbers (NaN and infinities too), booleans, None, lists (tuples come back as
    lists) and dictionaries by string. NumPy's numbers come back as Python's. These names mean something to the store
    and to `tfdist checkpoint`: `metrics`, numbers by name, by which retention chooses the best; `model_config`, the
    text of `model.to_json()`, and `weight_names`, the names in `tensors` of `model.weights` in their order, with which
    `tfdist checkpoint export` makes a .keras file.

    Attributes:
        tensors: What all tasks have alike, by name; written by the chief (task 0) and ignored on the others.
        own_tensors: What is this task's own, by name.
        record: What all tasks have alike and is no tensor: epoch, states of callbacks, ...; the chief's is written.
        own_record: What is this task's own and is no tensor.
    """

    tensors: dict[str, Any] = field(default_factory=dict)
    own_tensors: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    own_record: dict[str, Any] = field(default_factory=dict)
