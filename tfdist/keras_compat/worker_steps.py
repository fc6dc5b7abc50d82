"""Which worker has made which step under parameter servers, and how long it took."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

__all__ = [
    "HEAD",
    "WorkerStep",
    "count_updates",
    "counts_updates",
    "observe_worker_steps",
    "stop_observing",
    "tell_worker_step",
    "timed_on_worker",
]

#: What comes before the results of a function that was scheduled: who has run it, its seconds, and how many updates
#: the model has had meanwhile.
HEAD = ("worker", "seconds", "updates")


class WorkerStep(NamedTuple):
    """What one worker did when it was free.

    Attributes:
        worker: Its index.
        num_steps: So many steps of training.
        num_under_way: How many functions were scheduled when its result was taken in, this one not counted.
        seconds: On the worker's clock, from when it had the function to run until all of it was done; of all the steps.
        staleness: How many updates other workers made meanwhile, for each of its steps; not a number where nobody
            counts them.
    """

    worker: int
    num_steps: int
    num_under_way: int
    seconds: float
    staleness: float


_Observer = Callable[[WorkerStep], None]
_observers: weakref.WeakKeyDictionary[tf.distribute.Strategy, list[_Observer]] = weakref.WeakKeyDictionary()
_counted: weakref.WeakSet[tf.distribute.Strategy] = weakref.WeakSet()


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


def count_updates(strategy: tf.distribute.Strategy, *, is_wanted: bool) -> bool:
    """Whether steps that are traced from now on count the updates of others; returns whether that is new.

    Counting asks a parameter server for the number of updates before and after each step.
    """
    is_new = is_wanted != (strategy in _counted)
    (_counted.add if is_wanted else _counted.discard)(strategy)
    return is_new


def counts_updates(strategy: tf.distribute.Strategy) -> bool:
    """What `count_updates` was told."""
    return strategy in _counted


def timed_on_worker(function: Callable[[Any], tf.Tensor], num_updates: Callable[[], Any]) -> Callable[[Any], tf.Tensor]:
    """A function to be scheduled on a worker, which puts `HEAD` before the results.

    Args:
        function: A `tf.function` of one argument that returns a float64 vector. Being a function of its own, its call
            ends when all of its effects are there, and not only its result.
        num_updates: Reads how many updates the model has had; or returns None, to count none.
    """

    @tf.autograph.experimental.do_not_convert
    def timed(argument: Any) -> tf.Tensor:
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        began, before = tf.timestamp(), num_updates()
        with tf.control_dependencies([began] if before is None else [began, before]):
            results = function(argument)
        with tf.control_dependencies([results]):
            seconds = tf.timestamp() - began
            updates = tf.constant(np.nan, tf.float64) if before is None else tf.cast(num_updates() - before, tf.float64)
        return tf.concat([[tf.cast(worker, tf.float64), seconds, updates], results], axis=0)

    return timed
