"""What both participants with parameter servers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from benchmarks.place import EpochClock
from benchmarks.workloads import WORKLOADS, fixed_data

__all__ = ["serve", "time_fit_of_servers", "worker_data"]


def serve(resolver: Any) -> NoReturn:
    """Serves until it is killed: the runner does that when the coordinator has measured."""
    import tensorflow as tf

    tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc").join()
    raise AssertionError("a server has ended by itself")


def worker_data(model: str) -> Callable[[Any], Any]:
    """A function of the input context that returns endless batches in a worker's memory."""

    def make(_: Any) -> Any:
        import tensorflow as tf

        batch = WORKLOADS[model].batch
        return tf.data.Dataset.from_tensor_slices(fixed_data(model, batch)).batch(batch).repeat()

    return make


def time_fit_of_servers(keras: Any, network: Any, data: Any, model: str, epochs: int) -> dict[str, Any]:
    """Trains for one epoch to warm up and `epochs` to be timed. Steps are those of all workers together."""
    steps = 2 * WORKLOADS[model].steps
    clock = EpochClock(steps)

    class AtEpochEnd(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            clock.epoch_ended()

    history = network.fit(data, epochs=1 + epochs, steps_per_epoch=steps, verbose=0, callbacks=[AtEpochEnd()])
    return {"series": {"": clock.series()}, "losses": history.history["loss"]}
