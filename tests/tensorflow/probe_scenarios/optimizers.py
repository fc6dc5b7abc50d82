"""Probes: optimizers."""

import keras
import numpy as np
import tensorflow as tf

from probe_scenarios.registry import close, probe, toy_fit


@probe("BaseOptimizer.apply", on="mirrored", fails_with="AssertionError")
def clip_the_global_gradient(strategy):
    close(toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, clipnorm=1.0))[0], 0.9)


@probe("LossScaleOptimizer.apply", on="mirrored", stock=False, fails_with="")
def one_replica_overflows(strategy):
    w, _ = toy_fit(
        strategy,
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4.0),
        y=(10.0, 0.0, np.inf, 0.0),
    )
    assert w == 1.0


@probe("LossScaleOptimizer._tf_apply", on="mirrored", stock=False, fails_with="AssertionError")
def loss_scale_where_tensorflow_needs_a_merge_call(strategy):
    """TensorFlow updates variables without `merge_call` where replicas exchange through collectives; not so here."""
    import tfdist

    strategy = tfdist.mirrored_strategy(cross_device_ops=tf.distribute.ReductionToOneDevice())
    optimizer = keras.optimizers.LossScaleOptimizer
    w, _ = toy_fit(strategy, lambda: optimizer(keras.optimizers.SGD(0.05), initial_scale=4.0))
    close(w, 0.5)


@probe("TFOptimizer._backend_update_step", on="mirrored", stock=False, fails_with="RuntimeError.*merge_call")
def accumulation_in_a_condition(strategy):
    toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), batch_size=2)


@probe("TFOptimizer._apply_weight_decay", on="mirrored", stock=False, fails_with="RuntimeError.*merge_call")
def weight_decay_in_a_condition(strategy):
    toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, weight_decay=0.1, gradient_accumulation_steps=2), batch_size=2)


@probe("TFOptimizer._backend_increment_gradient_accumulators", on="mirrored", stock=False, fails_with="merge_call")
def increment_accumulators(strategy):
    toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), batch_size=2)


@probe(
    "TFOptimizer._overwrite_model_variables_with_average_value",
    on="mirrored",
    fails_with="RuntimeError.*merge_call",
)
def overwrite_with_averages(strategy):
    toy_fit(strategy, lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=1))
