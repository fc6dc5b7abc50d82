"""How a replica's loss becomes its share of the global one.

Let a global batch have n rows, and this replica m of them. Keras's reductions, on the replica's own rows:

- `sum`, none: the sums of the replicas add up as they are.
- a mean over rows (`sum_over_batch_size`, `mean`, `add_loss`, regularizers): the replica's mean times m / n.
- a mean over what a mask leaves, or over the sum of the sample weights: the divisor is summed over the replicas first,
  in an exchange of one number.
- a scalar that a loss function returns: taken for a mean over rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdist.errors import UnsupportedError, describe_problem
from tfdist.keras_compat import private_names
from tfdist.keras_compat.managed_strategies import num_replicas
from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import CompileLoss, Loss, Mean, Trainer, keras_backend
from tfdist.keras_compat.step_view import ReplicaView, current_view

__all__ = ["OVERRIDES", "scale_loss"]

_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


def _make(method: str) -> Any:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def scale(value: Any) -> Any:
            view = current_view()
            return original(value) if view is None else getattr(view, method)(value)

        return scale

    return make


def _make_reduce_values(original: Any) -> Any:
    @functools.wraps(original)
    def reduce_values(values: Any, sample_weight: Any = None, reduction: str = "sum_over_batch_size") -> Any:
        view = current_view()
        if view is None or reduction not in _MEANS:
            return original(values, sample_weight, reduction)
        if tuple(values.shape) == ():
            return view.scale_loss(values)
        if isinstance(view, ReplicaView) and reduction == "mean_with_sample_weight" and sample_weight is not None:
            own = [tf.reduce_sum(values), tf.reduce_sum(tf.cast(sample_weight, values.dtype))]
            view.num_scaled_losses += 1
            return tf.math.divide_no_nan(view.silence_if_empty(own[0]), view.sum_over_replicas(own[1:])[0])
        return original(values, sample_weight, reduction)

    return reduce_values


def _make_apply_mask(original: Any) -> Any:
    @functools.wraps(original)
    def apply_mask(sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
        view = current_view()
        if mask is None or not isinstance(view, ReplicaView) or reduction not in ("mean", "sum_over_batch_size"):
            return original(sample_weight, mask, dtype=dtype, reduction=reduction)
        # Weight what the mask leaves by total / valid of the global batch, and not of the replica's rows.
        kept = tf.cast(mask, dtype)
        own = [tf.cast(tf.size(mask), dtype), tf.reduce_sum(kept)]
        total, valid = view.sum_over_replicas(own)
        # Keras before 3.11 divides by valid + epsilon (keras/src/losses/loss.py); follow the installed one.
        weight = total / (valid + keras_backend.epsilon()) if _adds_epsilon() else tf.math.divide_no_nan(total, valid)
        weighted = original(sample_weight, mask, dtype=dtype, reduction="sum")
        return weighted * weight

    return apply_mask


@functools.cache
def _adds_epsilon() -> bool:
    """Whether `apply_mask` divides by the number of valid entries plus epsilon."""
    import inspect

    return "backend.epsilon()" in inspect.getsource(inspect.unwrap(private_names.loss_module.apply_mask))


#: Losses whose value for a row depends on the other rows of the batch.
_MIXES_ROWS: dict[str, Callable[[Any], bool]] = {
    "Circle": lambda _: True,
    "Dice": lambda loss: _covers_rows(loss.axis),
    "Tversky": lambda loss: _covers_rows(loss.axis),
}


def _covers_rows(axis: Any) -> bool:
    return axis is None or 0 in (axis if isinstance(axis, (list, tuple)) else (axis,))


def _make_loss_call(original: Any) -> Any:
    @functools.wraps(original)
    def call_loss(self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        view = current_view()
        mixes = _MIXES_ROWS.get(type(self).__name__)
        if isinstance(view, ReplicaView) and num_replicas(view.strategy) > 1 and mixes and mixes(self):
            raise UnsupportedError(
                describe_problem(
                    f"The loss {type(self).__name__} cannot be worked out by several replicas",
                    received=f"loss={self.name!r} (from compile) on {num_replicas(view.strategy)} replicas",
                    expected="a loss whose value for a row does not depend on the other rows of the batch",
                    fix="Give Dice or Tversky an `axis` without the batch axis 0; train Circle on one device.",
                )
            )
        loss = original(self, y_true, y_pred, sample_weight)
        return view.remember_share(loss) if isinstance(view, ReplicaView) else loss

    return call_loss


def _make_compute_loss(original: Any) -> Any:
    @functools.wraps(original)
    def compute_loss(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = original(self, *args, **kwargs)
        view = current_view()
        return view.remember_share(loss) if isinstance(view, ReplicaView) else loss

    return compute_loss


def _make_mean_update(original: Any) -> Any:
    @functools.wraps(original)
    def update_state(self: Any, values: Any, sample_weight: Any = None) -> Any:
        view = current_view()
        if isinstance(view, ReplicaView) and view.is_share(values):
            if sample_weight is None:
                sample_weight = tf.cast(view.num_rows, values.dtype) / tf.cast(view.num_rows_global, values.dtype)
            values = view.unscale_loss(values)
        return original(self, values, sample_weight)

    return update_state


def _make_compile_loss_call(original: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        view = current_view()
        if not isinstance(view, ReplicaView):
            return original(self, y_true, y_pred, sample_weight)
        with view.in_compile_loss():
            return original(self, y_true, y_pred, sample_weight)

    return call


def scale_loss(loss: Any) -> Any:
    """Weights a loss that a custom `train_step` works out itself, so that the replicas' gradients add up.

    To be called within `train_step`, on a loss that is a mean over the rows of the batch at hand, before its gradient
    is taken. Keras's own losses, `compute_loss` and `add_loss` need it not, and a loss that is a sum over rows neither.
    Every replica calls it, in the same place of its step; it exchanges nothing by itself.

    Args:
        loss: A floating scalar tensor, of shape ().

    Returns:
        A scalar of the same dtype: the loss times this replica's share of the rows of the global batch; outside of a
        step of tfdist's, times 1 / number of replicas, as Keras does (keras/src/losses/loss.py,
        `scale_loss_for_distribution`).
    """
    share = private_names.loss_module.scale_loss_for_distribution(tf.convert_to_tensor(loss))
    view = current_view()
    return view.remember_share(share) if isinstance(view, ReplicaView) else share


OVERRIDES = (
    Override(
        private_names.loss_module,
        "scale_loss_for_distribution",
        _make("scale_loss"),
        "Every replica's mean weighs 1/N however many rows it saw, so a short or uneven batch is weighted wrongly.",
    ),
    Override(
        private_names.loss_module,
        "unscale_loss_for_distribution",
        _make("unscale_loss"),
        "It multiplies by N what was not divided by N: logged losses are wrong on uneven batches.",
    ),
    Override(
        private_names.loss_module,
        "reduce_values",
        _make_reduce_values,
        "A loss function that returns a scalar is not scaled at all; a mean over sample weights is one per replica.",
    ),
    Override(
        private_names.loss_module,
        "apply_mask",
        _make_apply_mask,
        "A masked loss is normalised by what the mask leaves on each replica.",
    ),
    Override(
        Loss,
        "__call__",
        _make_loss_call,
        "A loss that mixes the rows of a batch is silently worked out on each replica's rows.",
    ),
    Override(
        CompileLoss,
        "call",
        _make_compile_loss_call,
        "The losses of several outputs are averaged over replicas however many rows each saw.",
    ),
    Override(
        Trainer,
        "compute_loss",
        _make_compute_loss,
        "A custom `train_step` that logs the loss of `compute_loss` logs a share of it.",
    ),
    Override(
        Mean,
        "update_state",
        _make_mean_update,
        "The mean of a loss of which each replica has a share is 1/N of it.",
    ),
)
