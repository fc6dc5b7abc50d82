"""A hand-written loop under TensorFlow's own strategy, with a Keras 3 model; the optimizer sums the gradients.

`strategy.run` within a `tf.function` that takes an iterator, which is

- `plain`: a tf.data iterator over the worker's own rows, for one device a worker. The fastest such loop known to us.
- `distributed`: that of a distributed dataset without an end.
- `tutorial`: that of a distributed dataset with an end, and the loss is summed over the workers at every step, as in
  tensorflow.org/tutorials/distribute/multi_worker_with_ctl. Under MultiWorkerMirroredStrategy both cost a collective:
  at every step the iterator asks all workers whether they have data left.
"""

from __future__ import annotations

from typing import Any

from benchmarks.keras_models import build, make_dataset, make_optimizer
from benchmarks.participants.logical_devices import make_logical_devices
from benchmarks.place import EpochClock, Place
from benchmarks.workloads import WORKLOADS


def measure(place: Place, model: str, epochs: int, devices: int = 1, data: str = "distributed") -> dict[str, Any]:
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
    if data == "plain":
        batches = make_dataset(model, 1).prefetch(tf.data.AUTOTUNE)
    else:
        has_end = data == "tutorial"
        batches = strategy.experimental_distribute_dataset(
            make_dataset(model, replicas, size.steps if has_end else None)
        )
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
        return strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None) if data == "tutorial" else loss

    clock = EpochClock(size.steps)
    losses = []
    iterator = iter(batches)
    for epoch in range(1 + epochs):
        if data == "tutorial" and epoch:
            iterator = iter(batches)
        for _ in range(size.steps):
            loss = step(iterator)
        local = [float(value) for value in strategy.experimental_local_results(loss)]
        losses.append(sum(local))
        clock.epoch_ended()
    return {"series": {"": clock.series()}, "losses": losses}
