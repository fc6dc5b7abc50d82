"""Which worker has made which step under parameter servers, and how long it took."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

__all__ = ["WorkerStep", "observe_worker_steps", "stop_observing", "tell_worker_step", "timed_on_worker"]


class WorkerStep(NamedTuple):
    """What one worker did when it was free.

    Attributes:
        worker: Its index.
        num_steps: So many steps of training.
        num_under_way: How many functions were scheduled when its result was taken in, this one not counted.
        seconds: On the worker's clock, from when it had the function to run until all of it was done; of all the steps.
    """

    worker: int
    num_steps: int
    seconds: float
    num_under_way: int


_Observer = Callable[[WorkerStep], None]
_observers: weakref.WeakKeyDictionary[tf.distribute.Strategy, list[_Observer]] = weakref.WeakKeyDictionary()


def observe_worker_steps(strategy: tf.distribute.Strategy, observer: _Observer) -> None:
    """Calls `observer` on the coordinator with each step of training that has ended. It must be quick."""
    _observers.setdefault(strategy, []).append(observer)


def stop_observing(strategy: tf.distribute.Strategy, observer: _Observer) -> None:
    """Ends `observe_worker_steps`; nothing if it never began."""
    if observer in (observers := _observers.get(strategy, [])):
        observers.remove(observer)


def tell_worker_step(strategy: tf.distribute.Strategy, step: WorkerStep) -> None:
    """Tells the observers."""
    for observer in _observers.get(strategy, ()):
        observer(step)


def timed_on_worker(function: Callable[[Any], tf.Tensor]) -> Callable[[Any], tf.Tensor]:
    """A function to be scheduled on a worker, which puts the worker's index and the seconds before the results.

    Args:
        function: A `tf.function` of one argument that returns a float64 vector. Being a function of its own, its call
            ends when all of its effects are there, and not only its result.
    """

    @tf.autograph.experimental.do_not_convert
    def timed(argument: Any) -> tf.Tensor:
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        began = tf.timestamp()
        with tf.control_dependencies([began]):
            results = function(argument)
        with tf.control_dependencies([results]):
            seconds = tf.timestamp() - began
        return tf.concat([[tf.cast(worker, tf.float64), seconds], results], axis=0)

    return timed
