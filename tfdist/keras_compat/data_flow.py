"""What a tensor of a traced step was computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

__all__ = ["depends_on", "is_addition", "is_argument", "key_of"]

Predicate = Callable[[tf.Tensor], bool]

_PASSED_ON = ("Identity", "Cast", "StopGradient", "EnsureShape", "Reshape")


def key_of(tensor: tf.Tensor) -> tuple[int, str]:
    """What identifies a tensor of a graph, whichever Python object stands for it."""
    return id(tensor.graph), tensor.name


def depends_on(tensor: tf.Tensor, is_source: Predicate) -> bool:
    """Whether `tensor` is a source, or was computed from one."""
    seen: set[tuple[int, str]] = set()
    to_see = [tensor]
    while to_see:
        tensor = to_see.pop()
        if is_source(tensor):
            return True
        if key_of(tensor) not in seen:
            seen.add(key_of(tensor))
            to_see.extend(_inputs(tensor))
    return False


def is_addition(value: tf.Tensor, is_state: Predicate, is_foreign: Predicate) -> bool:
    """Whether `value` is the state plus, or minus, what neither depends on the state nor on anything foreign.

    Args:
        value: A tensor of a graph.
        is_state: Whether a tensor is the state as it was read.
        is_foreign: Whether a tensor is something that the summands must not depend on.
    """
    while not is_state(value) and value.op.type in _PASSED_ON:
        value = value.op.inputs[0]
    if is_state(value):
        return True
    terms = list(value.op.inputs)
    if value.op.type == "Sub":
        candidates = terms[:1]
    elif value.op.type in ("AddV2", "Add", "AddN"):
        candidates = terms
    else:
        return False

    def is_refused(tensor: tf.Tensor) -> bool:
        return is_state(tensor) or is_foreign(tensor)

    for position, term in enumerate(candidates):
        others = terms[:position] + terms[position + 1 :]
        if is_addition(term, is_state, is_foreign) and not any(depends_on(other, is_refused) for other in others):
            return True
    return False


def is_argument(tensor: tf.Tensor) -> bool:
    """Whether `tensor` is an argument of a function of the graph's, so that where it came from cannot be seen."""
    return tensor.op.type == "Placeholder" and _outside(tensor) is None


def _inputs(tensor: tf.Tensor) -> Iterator[tf.Tensor]:
    """What a tensor was computed from; for one that a branch or a function captured, what it is outside."""
    yield from tensor.op.inputs
    outside = _outside(tensor)
    if outside is not None and tf.is_symbolic_tensor(outside):
        yield outside


def _outside(tensor: tf.Tensor) -> Any | None:
    captures: Iterable[tuple[Any, tf.Tensor]] = getattr(tensor.graph, "captures", ())
    if tensor.op.type != "Placeholder":
        return None
    return next((outside for outside, inside in captures if inside is tensor), None)
