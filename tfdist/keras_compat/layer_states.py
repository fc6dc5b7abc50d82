"""Integer variables that layers assign: added up over the replicas, where that is what one device would do."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfdist.errors import UnsupportedError, describe_problem
from tfdist.keras_compat.data_flow import depends_on, is_addition, is_argument, key_of
from tfdist.keras_compat.private_names import tree

__all__ = ["LayerStates"]


class LayerStates:
    """Looks at how the layers of a traced step update integer variables.

    What does not depend on the rows, all replicas do alike: a count of steps. Where the rows are added up (a count of
    rows), the replicas' sums are to be added. For anything else, a maximum or the last value, the replicas' values
    cannot be put together.

    A step that runs eagerly leaves no graph to look at, and every replica keeps its own values.

    Args:
        data: The batch of the replica.
        num_rows: Its number of rows.
    """

    def __init__(self, data: Any, num_rows: tf.Tensor) -> None:
        leaves = tf.nest.flatten(tree.flatten(data), expand_composites=True)
        self._rows = {key_of(v) for v in [*leaves, num_rows] if tf.is_symbolic_tensor(v)}
        #: What layers read of variables since they assigned them from the rows: of this replica's rows only.
        self._partial: set[tuple[int, str]] = set()
        self._reads: dict[int, set[tuple[int, str]]] = {}

    def watches(self, dtype: tf.DType) -> bool:
        """Whether updates of variables of this dtype are looked at."""
        return dtype.is_integer or dtype.is_bool

    def remember_read(self, variable: Any, value: tf.Tensor, *, is_partial: bool) -> None:
        """Takes note that `value` is what a layer read of a variable.

        Args:
            variable: The variable.
            value: A tensor of the step's graph.
            is_partial: Whether the step has assigned the variable from the rows already.
        """
        self._reads.setdefault(id(variable), set()).add(key_of(value))
        if is_partial:
            self._partial.add(key_of(value))

    def is_sum_over_rows(self, variable: Any, value: tf.Tensor) -> bool:
        """Whether an update adds up rows. `False` where it does not depend on them.

        Raises:
            UnsupportedError: When it depends on the rows in another way.
        """
        if not (tf.is_symbolic_tensor(value) and depends_on(value, self._is_of_replica)):
            return False
        reads = self._reads.get(id(variable), set())
        if is_addition(value, lambda tensor: key_of(tensor) in reads, lambda tensor: key_of(tensor) in self._partial):
            return True
        raise UnsupportedError(
            describe_problem(
                f"The variable {variable.path!r} has no value over several replicas: a layer assigns it what depends "
                "on the rows, and that is not a sum over them",
                received=f"an assignment of {value.dtype.name} that is not `variable + something` (from the layer)",
                expected="an integer to which something is added, as a count of rows; or one that does not depend on "
                "the rows, as a count of steps: replicas see different rows",
                fix=f"Write it with {variable.name}.assign_add(...), or keep a floating-point variable, which becomes "
                "the mean over the rows.",
            )
        )

    def _is_of_replica(self, tensor: tf.Tensor) -> bool:
        if key_of(tensor) in self._rows | self._partial or "Random" in tensor.op.type:
            return True
        return is_argument(tensor) and tensor.dtype not in {tf.resource, tf.variant}
