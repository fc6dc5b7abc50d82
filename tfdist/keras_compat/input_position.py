"""The position of training within its data: saved with a checkpoint, and found again by a resumed `fit`.

- *state*: the state of the tf.data iterator, shuffle buffers included. Found again at once.
- *skip*: the number of batches taken from the iterator, where its state does not hold a Python generator or
  `keras.utils.PyDataset`. Found again by reading them and dropping them: exact where the pipeline is deterministic.
- *epoch*: the epoch alone, for a Python generator of the user's, which this process cannot rewind or check.
- *workers*: the number of steps alone, under parameter servers with a function of the input context: every worker reads
  data of its own without end.

A shuffle draws its seed anew for each iterator, from a state that belongs to the dataset. The iterator's state holds
that as long as the shuffle has elements left; so the state at the epoch's begin is kept beside the present one.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from typing import Any

import tensorflow as tf
from absl import logging

from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.fit_watch import FitWatcher
from tfdist.keras_compat.private_names import (
    ArrayDataAdapter,
    EpochIterator,
    PyDatasetAdapter,
    deserialize_iterator,
    has_python_source,
    serialize_iterator,
    stateful_operation,
)

__all__ = ["GlobalBatches", "InputPosition", "WatchedEpochs"]

_PROGRESS_S = 10.0


@dataclasses.dataclass(frozen=True)
class InputPosition:
    """A position in the training data.

    Attributes:
        kind: `state`, `skip`, `epoch` or `workers`.
        step: Steps of the epoch that are done.
        numbers: JSON values beside them.
        tensors: The iterator's states, of dtype variant, by name.
    """

    kind: str
    step: int
    numbers: dict[str, Any]
    tensors: dict[str, Any]


class GlobalBatches:
    """Iterates a dataset of global batches that are split over replicas within the step, not in the pipeline.

    So the iterator's state does not depend on the worker, nor on how many there are.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset
        self.iterator: Any = None

    def __iter__(self) -> GlobalBatches:
        made = GlobalBatches(self._dataset)
        made.iterator = iter(self._dataset)
        return made

    def __next__(self) -> Any:
        return next(self.iterator)


class _Counting:
    """Counts the iterators that are made of a dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.num_made = 0

    def __iter__(self) -> Any:
        self.num_made += 1
        return iter(self.dataset)


class WatchedEpochs(EpochIterator):
    """What an epoch iterator has to have besides, so that a `FitWatcher` can ask for the position and set it.

    Attributes:
        watcher: The watcher, if there is one.
        step: Steps of the present epoch that were handed out.
        is_own: Whether the position is this worker's own, as its data are.
    """

    watcher: FitWatcher | None = None
    step = 0
    is_own = False

    def _watch(self, watcher: FitWatcher | None) -> None:
        """To be called at the end of the constructor, with what `claim_input` returned."""
        self.watcher = watcher
        if watcher is None:
            return
        self._source = _Counting(self._distributed_dataset)
        self._iterator: Any = None
        self._pending: Any = None
        self._kind: str | None = None
        self._epoch_start: Any = None
        self._epoch_random: Any = None
        self._num_taken = 0
        self._hooks = {"begun": 0, "ended": 0}
        self.is_exhausted = False
        if isinstance(self.data_adapter, PyDatasetAdapter):
            for name, key in (("on_epoch_begin", "begun"), ("on_epoch_end", "ended")):
                setattr(self.data_adapter, name, self._counted(getattr(self.data_adapter, name), key))

    def _counted(self, hook: Any, key: str) -> Any:
        def counted() -> None:
            self._hooks[key] += 1
            hook()

        return counted

    def _get_iterator(self) -> Any:
        return super()._get_iterator() if self.watcher is None else self._source

    def __iter__(self) -> Any:
        super().__iter__()
        if self.watcher is not None:
            self.step, self._pending, self.is_exhausted = 0, None, False
            self.watcher.before_steps(self)
        return self

    def __next__(self) -> Any:
        if self.watcher is None:
            return super().__next__()
        item, self._pending = self._pending, None
        if item is None:
            item = self._take()
        self.watcher.before_step(self)
        self.step += self.steps_per_execution
        self._num_taken += self.steps_per_execution
        return item

    def _take(self) -> Any:
        try:
            item = super().__next__()
        except StopIteration:
            self.is_exhausted = True
            raise
        if item[-1] is not self._iterator:
            self._iterator, self._num_taken = item[-1], 0
            self._look_at(item[-1])
        return item

    def _look_at(self, iterator: Any) -> None:
        """Takes note of an iterator before anything is taken from it."""
        source = _tf_iterator(iterator)
        if source is None:
            self._kind = "workers"
        elif has_python_source(self.data_adapter):
            self._kind = "epoch"
        elif isinstance(self.data_adapter, PyDatasetAdapter):
            self._kind, self._epoch_random = "skip", random.getstate()
        elif self._kind != "skip":
            if self._kind is None and not isinstance(self.data_adapter, ArrayDataAdapter):
                _warn_of_state_outside(source)
            self._kind = "state"
            self._epoch_start = self._serialize(source)

    def _serialize(self, iterator: tf.data.Iterator) -> Any:
        """The state of an iterator; where it has none, positions are counts from now on."""
        try:
            return serialize_iterator(iterator)
        except tf.errors.OpError as error:
            self._kind = "skip"
            logging.log_first_n(
                logging.WARNING,
                "The position in the training data cannot be saved: %s A resumed fit reads the batches before its "
                "position and drops them, which is exact if the data come in the same order again.",
                1,
                _sentence(error),
            )
            return None

    @property
    def kind(self) -> str | None:
        """The kind of the position; `None` before the first step."""
        return self._kind

    @property
    def may_be_at_end(self) -> bool:
        """Whether no step may be left of the epoch."""
        return self.num_batches is None or self.step >= self.num_batches

    def position(self, *, with_tensors: bool = True) -> InputPosition:
        """The position between two steps. To be asked for in `FitWatcher.before_step`.

        Args:
            with_tensors: Whether this worker needs the states; others need the rest alone.
        """
        tensors = {}
        if self._kind == "state" and with_tensors:
            now = self._serialize(_tf_iterator(self._iterator))
            tensors = {} if now is None else {"epoch_start": self._epoch_start, "now": now}
        numbers: dict[str, Any] = {
            "steps_seen": self._steps_seen,
            "num_batches": self._num_batches,
            "num_taken": self._num_taken,
            "num_iterators": self._source.num_made,
            "hooks": dict(self._hooks),
        }
        if self._epoch_random is not None:
            numbers["random"] = self._epoch_random
        return InputPosition(str(self._kind), self.step, numbers, tensors)

    def resume(self, position: InputPosition) -> None:
        """Goes to a position. To be called in `FitWatcher.before_steps`.

        Raises:
            ArgumentError: `steps_per_execution` does not divide the position's step.
        """
        count, rest = divmod(position.step, self.steps_per_execution)
        if rest:
            raise ArgumentError(
                describe_problem(
                    "Training cannot be resumed within a call of several steps",
                    received=f"steps_per_execution={self.steps_per_execution} (from compile), and a checkpoint after "
                    f"{position.step} steps of its epoch",
                    expected="a number of steps per execution that divides it",
                    fix="Compile with the steps_per_execution of before.",
                )
            )
        numbers = position.numbers
        self._num_batches = numbers["num_batches"]
        if position.kind == "skip":
            self._repeat_hooks(numbers["hooks"])
            for _ in range(numbers["num_iterators"] - 1):
                iter(self._source)
        try:
            for _ in range(count):  # nothing is read: the iterator is not asked
                self._take()
            self._pending = self._take()
        except StopIteration:
            logging.warning(
                "The epoch has fewer steps than the checkpoint has behind it, %d: it ends here.", position.step
            )
            return
        self.step, self._steps_seen = position.step, numbers["steps_seen"]
        if position.kind == "state":
            self._restore_state(position.tensors)
        elif position.kind == "skip":
            if "random" in numbers:  # Keras shuffles with Python's random when the first batch is asked for
                version, words, gauss = numbers["random"]
                random.setstate((version, tuple(words), gauss))
                self._epoch_random = numbers["random"]
            _skip(_tf_iterator(self._iterator), numbers["num_taken"])
        if position.kind in ("state", "skip"):
            self._num_taken = numbers["num_taken"]

    def _restore_state(self, tensors: dict[str, Any]) -> None:
        iterator = _tf_iterator(self._iterator)
        deserialize_iterator(iterator, tensors["now"])
        self._epoch_start = tensors["epoch_start"]
        if _num_random_sources(tensors["now"]) < _num_random_sources(tensors["epoch_start"]):
            # What draws the seeds of the epochs to come has ended, so the present state does not hold it.
            passing = _tf_iterator(iter(self._source.dataset))
            deserialize_iterator(passing, tensors["epoch_start"])

    def _repeat_hooks(self, hooks: dict[str, int]) -> None:
        """Calls a PyDataset's hooks as often as they had been called, but for the begin of this epoch."""
        if not isinstance(self.data_adapter, PyDatasetAdapter):
            return
        dataset = self.data_adapter.py_dataset
        while self._hooks["begun"] < hooks["begun"] - 1:
            self._hooks["begun"] += 1
            dataset.on_epoch_begin()
            self._hooks["ended"] += 1
            dataset.on_epoch_end()
        while self._hooks["ended"] < hooks["ended"]:
            self._hooks["ended"] += 1
            dataset.on_epoch_end()


def _tf_iterator(iterator: Any) -> Any | None:
    """The tf.data iterator below what a step function gets; `None` where it is on other machines."""
    return iterator if isinstance(iterator, tf.data.Iterator) else getattr(iterator, "iterator", None)


def _warn_of_state_outside(iterator: tf.data.Iterator) -> None:
    operation = stateful_operation(iterator)
    if operation is not None:
        logging.log_first_n(
            logging.WARNING,
            "The input pipeline calls %s, whose state TensorFlow does not let out: a resumed fit finds its rows again, "
            "but not what %s would have returned. For random numbers use tf.random.stateless_uniform and its like, "
            "with seeds from tf.data.Dataset.random(seed, rerandomize_each_iteration=True).",
            1,
            operation,
            operation,
        )


def _num_random_sources(state: Any) -> int:
    """How many shuffles and random datasets have their state in that of an iterator."""
    return tf.io.serialize_tensor(state).numpy().count(b"epoch_num_random_samples")


def _skip(iterator: Any, count: int) -> None:
    """Reads batches and drops them."""
    said = begun = time.monotonic()
    for index in range(count):
        next(iterator)
        now = time.monotonic()
        if now - said >= _PROGRESS_S or index + 1 == count:
            said = now
            print(
                f"Resuming: {index + 1} of {count} batches that were trained on before are read and dropped "
                f"({now - begun:.0f} s)",
                file=sys.stderr,
                flush=True,
            )


def _sentence(error: tf.errors.OpError) -> str:
    text = error.message.partition("}} ")[2] or error.message
    return text.partition(" [Op:")[0].rstrip(".") + "."
