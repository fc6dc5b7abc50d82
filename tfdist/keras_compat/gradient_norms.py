"""The norms of gradients, worked out in the steps for which somebody asks."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["GradientNorms", "gradient_norms", "use_gradient_norms"]

_numbers = itertools.count()
_in_use: weakref.WeakKeyDictionary[tf.distribute.Strategy, GradientNorms] = weakref.WeakKeyDictionary()


class GradientNorms:
    """The norms of the last step of a strategy that was asked for.

    The global norm of all gradients that an optimizer gets, before it clips them (`tf.linalg.global_norm`); of sparse
    gradients that of their rows as they come, without adding up those of one index. Where a step has several
    optimizers, of the last one.
    """

    def __init__(self) -> None:
        # Plain resources: a tf.Variable that is made in a strategy's scope would be the strategy's.
        with tf.init_scope(), tf.device("CPU:0"):
            name = f"tfdist gradient norms {next(_numbers)}"
            self._asked = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=f"{name} asked")
            self._norms = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name=name)
            self.ask(is_wanted=False)
            tf.raw_ops.AssignVariableOp(resource=self._norms, value=tf.fill([2], np.nan))

    def ask(self, *, is_wanted: bool = True) -> None:
        """Whether the next steps work norms out, which takes reading all gradients twice."""
        with tf.init_scope(), tf.device("CPU:0"):
            tf.raw_ops.AssignVariableOp(resource=self._asked, value=tf.constant(is_wanted))

    def take(self) -> tuple[float, float] | None:
        """The norms, of the rows of this process's first replica and of the global batch; None before any."""
        with tf.init_scope(), tf.device("CPU:0"):
            own, whole = tf.raw_ops.ReadVariableOp(resource=self._norms, dtype=tf.float32).numpy().tolist()
            tf.raw_ops.AssignVariableOp(resource=self._norms, value=tf.fill([2], np.nan))
        return None if np.isnan(own) and np.isnan(whole) else (own, whole)

    def work_out(self, own: Sequence[Any], share: tf.Tensor, whole: Sequence[Any], scale: Any = 1.0) -> None:
        """Within a step, on one replica, in replica context: works the norms out, if they are asked for.

        Args:
            own: The gradients of this replica, which add up over the replicas to `whole`; some may be None.
            share: This replica's part of the rows; 0 if it has none.
            whole: The gradients of the global batch; some may be None.
            scale: What gradients were multiplied by, as by a loss scale.
        """
        own, whole = ([g for g in gradients if g is not None] for gradients in (own, whole))
        scale = tf.cast(scale, tf.float32)

        def norm(gradients: Sequence[Any]) -> tf.Tensor:
            values = [tf.cast(g.values if isinstance(g, tf.IndexedSlices) else g, tf.float32) for g in gradients]
            return tf.linalg.global_norm(values) / scale

        def assign() -> tf.Tensor:
            norms = tf.stack([tf.math.divide_no_nan(norm(own), tf.cast(share, tf.float32)), norm(whole)])
            with tf.device("CPU:0"):
                tf.raw_ops.AssignVariableOp(resource=self._norms, value=norms)
            return tf.constant(value=True)

        with tf.device("CPU:0"):
            is_asked = tf.raw_ops.ReadVariableOp(resource=self._asked, dtype=tf.bool)
        tf.cond(is_asked, assign, lambda: tf.constant(value=False))


def use_gradient_norms(strategy: tf.distribute.Strategy) -> GradientNorms:
    """Lets the steps of a synchronous strategy that are traced from now on look whether somebody asks."""
    return _in_use.setdefault(strategy, GradientNorms())


def gradient_norms(strategy: tf.distribute.Strategy) -> GradientNorms | None:
    """Those of a strategy; None where nobody uses them."""
    return _in_use.get(strategy)
