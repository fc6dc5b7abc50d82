"""Optimizers within a step: gradients are summed first, then Keras's single-device code runs on every replica.

Stock Keras clips, decays and decides "finite" on each replica's own gradients and sums afterwards. Here the exchange
comes first. What follows is the same on all replicas, so each runs Keras's backend-independent code (the methods of
`BaseOptimizer`) on its own copy of the variables, without a further exchange; that includes accumulation, moving
averages and constraints, and their `cond`s, in which TensorFlow's `merge_call` is not possible.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfdist.errors import UnsupportedError, describe_problem
from tfdist.keras_compat.gradient_norms import gradient_norms
from tfdist.keras_compat.override import Override
from tfdist.keras_compat.partitioned_variables import shards_of, split_gradient
from tfdist.keras_compat.private_names import (
    BaseOptimizer,
    LossScaleOptimizer,
    TFOptimizer,
    optimizer_strategy,
    set_variable_count,
    variable_count,
)
from tfdist.keras_compat.step_view import ReplicaView, StepView, current_view, entered

__all__ = ["OVERRIDES"]


def _make_apply(original: Any) -> Any:
    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        view = current_view()
        if view is not None and not view.updates_alone:
            _refuse_asynchronous_options(self)
        if not isinstance(view, ReplicaView) or view.is_reduced:
            return original(self, grads, trainable_variables)
        own = list(grads)
        grads = view.reduce_gradients(own)
        norms = gradient_norms(view.strategy) if view.local_index == 0 else None
        if norms is not None:
            norms.work_out(own, view.share_of_rows, grads, _loss_scale(self))
        if not self.built and trainable_variables is not None:
            trainable_variables = list(trainable_variables)
            with entered(None), tf.init_scope():  # slot variables are made once, for all replicas
                self.build(trainable_variables)
        with view.reduced():
            return original(self, grads, trainable_variables)

    return apply


def _loss_scale(optimizer: Any) -> Any:
    """What `optimizer.scale_loss` multiplies a loss by (keras/src/optimizers, `scale_loss`, Keras 3.8 - 3.15)."""
    if isinstance(optimizer, LossScaleOptimizer):
        own = optimizer.dynamic_scale.value if optimizer.built else optimizer.initial_scale
        return own * _loss_scale(optimizer.inner_optimizer)
    return optimizer.loss_scale_factor or 1.0


def _refuse_asynchronous_options(optimizer: Any) -> None:
    """Raises `UnsupportedError` for options that count steps which asynchronous workers take at the same time."""
    instead = "Use a larger batch instead, or train with MultiWorkerMirroredStrategy."
    options = {
        "gradient_accumulation_steps": (optimizer.gradient_accumulation_steps, instead),
        "ema_overwrite_frequency": (optimizer.use_ema and optimizer.ema_overwrite_frequency, instead),
    }
    if isinstance(optimizer, LossScaleOptimizer):  # another worker may change the scale between loss and gradients
        instead = "Use the policy mixed_bfloat16 instead of mixed_float16, or train with MultiWorkerMirroredStrategy."
        options["dynamic_growth_steps"] = (optimizer.dynamic_growth_steps, instead)
    for option, (value, fix) in options.items():
        if value:
            raise UnsupportedError(
                describe_problem(
                    f"{option} has no meaning under parameter servers, whose workers step asynchronously",
                    received=f"{option}={value} (from the optimizer {optimizer.name!r})",
                    expected="an optimizer whose every step is complete in itself",
                    fix=fix,
                )
            )


def _make_alone(name: str) -> Any:
    """Routes a method of `TFOptimizer` to the backend-independent one where the replica updates its own copy."""

    def make(original: Any) -> Any:
        independent = getattr(BaseOptimizer, name)

        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            view = current_view()
            chosen = independent if view is not None and view.updates_alone else original
            return chosen(self, *args, **kwargs)

        return method

    return make


def _make_tf_apply(original: Any) -> Any:
    @functools.wraps(original)
    def _tf_apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        view = current_view()
        if view is not None and view.updates_alone:
            return self._common_apply(grads, trainable_variables)
        return original(self, grads, trainable_variables)

    return _tf_apply


class _ShardView(StepView):
    """Within it, partitioned variables and their slots are those of one shard."""

    def __init__(self, index: int) -> None:
        self._index = index

    def read(self, variable: Any) -> Any | None:
        """Returns the shard."""
        shards = shards_of(variable)
        return shards[self._index] if shards else None


#: Optimizers whose update of one element depends on other elements of the variable.
_NOT_ELEMENTWISE = ("Adafactor", "Lamb", "Muon")


def _update_shards(optimizer: Any, gradient: Any, variable: Any, learning_rate: Any) -> None:
    """Updates each shard of a partitioned variable on the parameter server that holds it."""
    if type(optimizer).__name__ in _NOT_ELEMENTWISE:
        raise UnsupportedError(
            describe_problem(
                f"{type(optimizer).__name__} cannot update a variable that is split over parameter servers",
                received=f"the variable {variable.path} in {len(shards_of(variable))} shards",
                expected="an optimizer that updates each element by itself, such as SGD, Adam, Adagrad or FTRL",
                fix="Use such an optimizer, or leave out variable_partitioner.",
            )
        )
    for index, (shard, piece) in enumerate(zip(shards_of(variable), split_gradient(gradient, variable), strict=True)):
        with entered(_ShardView(index)), tf.device(shard.device):
            optimizer.update_step(piece, variable, learning_rate)


def _make_update_step(original: Any) -> Any:
    alone = _make_alone("_backend_update_step")(original)

    @functools.wraps(original)
    def _backend_update_step(self: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        pairs = list(zip(grads, trainable_variables, strict=True))
        whole = [(g, v) for g, v in pairs if not shards_of(v)]
        if whole:
            alone(self, *map(list, zip(*whole, strict=True)), learning_rate)
        for gradient, variable in pairs:
            if shards_of(variable):
                _update_shards(self, gradient, variable, learning_rate)

    return _backend_update_step


def _make_apply_weight_decay(original: Any) -> Any:
    alone = _make_alone("_apply_weight_decay")(original)

    @functools.wraps(original)
    def _apply_weight_decay(self: Any, variables: Any) -> None:
        alone(self, [v for v in variables if not shards_of(v)])
        if self.weight_decay is None:
            return
        for variable in variables:
            if shards_of(variable) and self._use_weight_decay(variable):
                for shard in shards_of(variable):
                    rate = tf.cast(self.learning_rate, shard.dtype) * tf.cast(self.weight_decay, shard.dtype)
                    shard.assign_sub(shard * rate)

    return _apply_weight_decay


def _make_whole(name: str) -> Any:
    """Routes to the backend-independent method also where a variable is partitioned."""
    route = _make_alone(name)

    def make(original: Any) -> Any:
        routed = route(original)
        independent = getattr(BaseOptimizer, name)

        @functools.wraps(original)
        def method(self: Any, *args: Any) -> Any:
            partitioned = any(shards_of(v) for v in self.variables)
            return independent(self, *args) if partitioned else routed(self, *args)

        return method

    return make


def _make_var_key(original: Any) -> Any:
    @functools.wraps(original)
    def _var_key(self: Any, variable: Any) -> Any:
        shards = shards_of(variable)
        return original(self, shards[0] if shards else variable)

    return _var_key


def _make_add_variable_from_reference(original: Any) -> Any:
    @functools.wraps(original)
    def add_variable_from_reference(self: Any, reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
        shards = shards_of(reference_variable)
        if not shards:
            return original(self, reference_variable, *args, **kwargs)
        # A slot is partitioned like its variable. Parameter servers take turns: begin with that of the first shard.
        strategy = optimizer_strategy(self)
        count = variable_count(strategy)
        set_variable_count(strategy, tf.DeviceSpec.from_string(shards[0].device).task)
        slot = BaseOptimizer.add_variable_from_reference(self, reference_variable, *args, **kwargs)
        set_variable_count(strategy, count)
        return slot

    return add_variable_from_reference


_IN_COND = "`merge_call` is not possible within a `cond` (gradient accumulation, averages raise)."
_IN_SHARDS = "A slot, key or update of a partitioned variable fails: a `ShardedVariable` is no variable."

OVERRIDES = (
    Override(
        BaseOptimizer,
        "apply",
        _make_apply,
        "Gradients are clipped on each replica, before they are summed.",
    ),
    Override(
        LossScaleOptimizer,
        "apply",
        _make_apply,
        "Each replica decides by its own gradients whether the step is finite; workers then hang.",
    ),
    Override(
        LossScaleOptimizer,
        "_tf_apply",
        _make_tf_apply,
        "`merge_call` within the loss scale's `cond`.",
    ),
    Override(TFOptimizer, "_backend_update_step", _make_update_step, f"{_IN_COND} {_IN_SHARDS}"),
    Override(TFOptimizer, "_apply_weight_decay", _make_apply_weight_decay, f"{_IN_COND} {_IN_SHARDS}"),
    *(
        Override(TFOptimizer, name, _make_whole(name), _IN_COND)
        for name in ("_backend_increment_gradient_accumulators", "_overwrite_model_variables_with_average_value")
    ),
    Override(TFOptimizer, "_var_key", _make_var_key, _IN_SHARDS),
    Override(TFOptimizer, "add_variable_from_reference", _make_add_variable_from_reference, _IN_SHARDS),
)
