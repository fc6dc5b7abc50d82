"""A hand-written loop under TensorFlow's own strategy, with a Keras 3 model, as TensorFlow's tutorial writes it.

tensorflow.org/tutorials/distribute/multi_worker_with_ctl: `strategy.run` within a `tf.function` that takes the iterator
of a distributed dataset; the optimizer sums the gradients. The tutorial also sums the loss over the workers at every
step (`reduces_loss`), and a metric, which costs collectives; without them the loop is as fast as such a loop can be.
"""

from __future__ import annotations

from typing import Any

from benchmarks.keras_models import build, make_dataset, make_optimizer
from benchmarks.participants.logical_devices import make_logical_devices
from benchmarks.place import EpochClock, Place
from benchmarks.workloads import WORKLOADS


def measure(place: Place, model: str, epochs: int, devices: int = 1, reduces_loss: bool = False) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    if devices > 1:
        strategy = tf.distribute.MirroredStrategy(make_logical_devices(devices))
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    replicas = strategy.num_replicas_in_sync
    assert replicas == place.workers * devices
    size = WORKLOADS[model]
    with strategy.scope():
        network = build(keras, model)
        optimizer = make_optimizer(keras)
        optimizer.build(network.trainable_variables)
    data = strategy.experimental_distribute_dataset(make_dataset(model, replicas, size.steps))
    variables = network.trainable_variables

    def step_on_replica(batch: Any) -> Any:
        inputs, labels = batch
        with tf.GradientTape() as tape:
            logits = network(inputs, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=size.batch * replicas)
        gradients = tape.gradient(loss, [v.value for v in variables])
        optimizer.apply(gradients, variables)
        return loss

    @tf.function
    def step(iterator: Any) -> Any:
        loss = strategy.run(step_on_replica, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None) if reduces_loss else loss

    clock = EpochClock(size.steps)
    losses = []
    for _ in range(1 + epochs):
        iterator = iter(data)
        for _ in range(size.steps):
            loss = step(iterator)
        local = [float(value) for value in strategy.experimental_local_results(loss)]
        losses.append(sum(local))
        clock.epoch_ended()
    return {"series": {"": clock.series()}, "losses": losses}
