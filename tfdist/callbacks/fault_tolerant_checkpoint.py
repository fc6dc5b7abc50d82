"""`FaultTolerantCheckpoint`: a killed `fit` that is started again goes on as if nothing had happened."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfdist.callbacks.callback_states import keep_csv_rows
from tfdist.callbacks.fit_state import FitState, ModelFacts, capture_fit, restore_fit, restore_model
from tfdist.callbacks.questions import steps_to_next_question
from tfdist.callbacks.step_marker import StepMarker
from tfdist.callbacks.stop_signals import StopSignals
from tfdist.callbacks.worker_store import WorkerStore
from tfdist.checkpointing.retention import Retention
from tfdist.checkpointing.schedule import SaveSchedule, answer_by_clock, decide_save
from tfdist.errors import ArgumentError, CheckpointError, describe_problem
from tfdist.keras_compat import job_seed
from tfdist.keras_compat.agreement import any_worker, numbers_of_all_workers
from tfdist.keras_compat.fit_watch import FitCall, FitWatcher
from tfdist.keras_compat.input_position import WatchedEpochs
from tfdist.keras_compat.installation import install
from tfdist.keras_compat.managed_strategies import is_managed
from tfdist.keras_compat.private_names import epoch_logs, model_strategy, set_initial_epoch
from tfdist.reporting.events import report_event
from tfdist.reporting.heartbeat import count_steps, in_phase
from tfdist.snapshots import CheckpointStore, RestoredCheckpoint, Snapshot

__all__ = ["FaultTolerantCheckpoint"]

# Before a call of `fit` that makes the callback among its arguments: Python looks `model.fit` up before them.
install()

#: How long a save that is in flight may go on when `fit` has failed on this worker, in seconds.
_GRACE_AFTER_ERROR_S = 5.0

#: How many calls of `fit` have ended in this process, for each directory. One that failed is made again.
_num_fits: dict[str, int] = {}


@dataclasses.dataclass
class _Resumption:
    """What a `fit` goes on from.

    Attributes:
        snapshot: The state.
        found: The checkpoint that holds it.
        state: What `snapshot.record` says.
        is_done: Whether nothing is left to train.
    """

    snapshot: Snapshot
    found: RestoredCheckpoint
    state: FitState
    is_done: bool


class FaultTolerantCheckpoint(FitWatcher):
    """Saves all that a `fit` is made of, and lets the same call of `fit` in a new process go on from there.

    Weights, optimizer, metrics within the epoch, states of random generators and of callbacks, and the position in the
    data: training that was killed at any moment and is started again ends as it would have without the kill, with every
    sample trained on once an epoch. docs/checkpoints.md says what is exact where, and what is not.

    Every worker makes it, with the same arguments, and a directory that all see. Under parameter servers the
    coordinator alone reads and writes. The first `fit` of a process with a directory goes on from the first `fit` of
    the process that was killed, the second from the second. A `fit` that had ended trains nothing when it is called
    again in a new process, unless its `epochs` has grown.

    Making it reads nothing. A save that fails, as on a full disk, is a warning, and the next one tries again. `fit`
    raises `CheckpointError` when there are checkpoints and none can be read, or when they do not fit the model or the
    data.

    Example:
        ::

            checkpoint = tfdist.callbacks.FaultTolerantCheckpoint("checkpoints", save_interval_steps=100)
            model.fit(dataset, epochs=10, callbacks=[checkpoint])

    Args:
        directory: Where the checkpoints are, a path or a URL that `tf.io.gfile` knows; made if it is not there. The
            same for all workers, on a disk that all see.
        save_interval_steps: Save at each step that is a multiple of it, counted over all epochs; at least 1. None:
            not by steps.
        save_interval_s: Save when the last checkpoint is so many seconds old, by the chief's clock. None: not by
            time.
        save_each_epoch: Save at the end of each epoch.
        keep_newest: How many of the newest checkpoints stay; None for all.
        keep_best: How many of the best by `monitor` stay.
        monitor: A name in the logs of an epoch, such as `val_loss`.
        mode: `min` or `max`: which value of `monitor` is the best.
        keep_every_steps: The first checkpoint of every so many steps stays for good.
        compression: None, or `gzip`.
        asynchronous: Whether training goes on while a checkpoint is written.
        signals: Names of signals on which to save, end `fit`, and end the process with `exit_status`.
        exit_status: That status. 75 is EX_TEMPFAIL of sysexits.h, "try again later".

    Raises:
        ArgumentError: An argument is out of range, or there is no such signal.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        save_interval_steps: int | None = None,
        save_interval_s: float | None = None,
        save_each_epoch: bool = True,
        keep_newest: int | None = 3,
        keep_best: int = 0,
        monitor: str | None = None,
        mode: str = "min",
        keep_every_steps: int | None = None,
        compression: str | None = None,
        asynchronous: bool = True,
        signals: Sequence[str] = ("SIGTERM", "SIGUSR1"),
        exit_status: int = os.EX_TEMPFAIL,
    ) -> None:
        super().__init__()
        self._schedule = SaveSchedule(save_interval_steps, save_interval_s, save_each_epoch)
        self._retention = Retention(keep_newest, keep_best, monitor, mode, keep_every_steps)
        self._directory = os.fspath(directory)
        self._compression = compression
        self._is_asynchronous = asynchronous
        self._signals = StopSignals(signals)
        self._exit_status = exit_status
        self._asks = bool(signals) or self._schedule.needs_clock
        self._call: FitCall | None = None
        CheckpointStore(self._directory, compression=compression)  # refuses what it cannot take
        install()

    def before_fit(self, call: FitCall) -> None:
        """Chooses the checkpoint to go on from. Collective: all workers agree on it."""
        self._strategy = model_strategy(call.model)
        self._stack = contextlib.ExitStack()
        _refuse_foreign_strategy(self._strategy)
        self._call = call
        self._worker = WorkerStore(
            self._strategy, self._directory, retention=self._retention, compression=self._compression
        )
        self._number = _num_fits.get(self._directory, 0)
        self._stack.enter_context(self._signals.listening())
        self._reset()
        self._stack.callback(self._close_worker)
        if self._worker.is_newcomer:
            self._resumption = None  # `on_train_begin` knows more: the model's variables are not all there yet
            return
        self._resumption = self._choose(self._worker.agree())
        self._go_on_from_resumption()

    def _go_on_from_resumption(self) -> None:
        resumption = self._resumption
        if resumption is not None:
            for logger, append in keep_csv_rows(self._present_call.callbacks):
                self._stack.callback(setattr, logger, "append", append)
        seed = None if resumption is None else resumption.state.agreed_seed
        if resumption is not None or self._worker.num_tasks == 1:
            job_seed.use(seed)

    def _reset(self) -> None:
        self._epochs: WatchedEpochs | None = None
        self._epoch = 0
        self._num_epochs_ended = 0
        self._epoch_metrics: dict[str, float] = {}
        self._is_begun = self._is_restored = self._has_failed = False
        self._marker: StepMarker | None = None
        self._first_step = self._step = 0
        self._last_saved_step: int | None = None
        self._last_save_time = self._last_question_time = time.monotonic()
        self._last_question = self._next_question = 0
        self._logs: dict[str, Any] | None = None
        self._facts: ModelFacts | None = None
        self._is_told_of_generator = False
        self._welcomed_until: int | None = None

    def _admit_newcomers(self, step: int, epochs: WatchedEpochs) -> None:
        """Saves a checkpoint and takes newcomers in, who go on from it. Collective."""
        if not self._may_save(epochs):
            return
        is_saved = self._save(step, self._epoch, epochs, wait=True)
        last = self._worker.store.last_committed
        if not any_worker(self._strategy, self._worker.task == 0 and is_saved and last is not None):
            return  # the disk is full, say: those who wait are asked in again by the next question
        checkpoint = "" if last is None else last.name
        self._worker.admit(checkpoint=checkpoint, step=step, next_question=self._next_question)
        logging.warning("The job has %d members from step %d on.", self._worker.num_tasks, step)

    def _join(self) -> None:
        """Waits to be taken in, and learns from which checkpoint to go on."""
        welcome = self._worker.join()
        self._resumption = self._choose(welcome["checkpoint"] or self._worker.store.choose())
        if self._resumption is None or self._step != welcome["step"]:
            raise CheckpointError(
                describe_problem(
                    "This worker was taken in, and cannot find the checkpoint of the others",
                    received=f"{self._directory} (from the argument directory), without step {welcome['step']}",
                    expected="the checkpoint that the members have written, in a directory that all workers see",
                    fix="Name a directory that is shared by all nodes.",
                )
            )
        self._go_on_from_resumption()
        self._welcomed_until = welcome["next_question"]

    def _choose(self, name: str | None) -> _Resumption | None:
        if name is None:
            return None
        restored = self._worker.store.restore(name)
        assert restored is not None
        snapshot, found = restored
        state = FitState.from_record(snapshot.record)
        self._first_step = self._step = found.step
        if state.fit < self._number:
            return None  # of an earlier fit of this process: this one begins with the model as it is
        is_done = state.fit > self._number or (state.is_complete and self._present_call.epochs <= state.epoch_limit)
        if not is_done:
            report_event("resumed", step=found.step)
            if self._number == 0:
                count_steps(found.step)  # of this process's heartbeat, which begins at 0
        if self._worker.task == 0:
            if is_done:
                logging.warning(
                    "Nothing is left to train: %s in %s is of a training that has ended, of %d epochs. Raise epochs to "
                    "go on, or name another directory to train anew.",
                    found.name,
                    self._directory,
                    state.epoch_limit,
                )
            else:
                logging.warning(
                    "Training goes on from %s in %s: epoch %d, %d steps of it done.",
                    found.name,
                    self._directory,
                    state.epoch + 1,
                    0 if state.position is None else state.position["step"],
                )
        self._last_saved_step = found.step
        self._epoch_metrics = dict(snapshot.record.get("metrics", {}))
        return _Resumption(snapshot, found, state, is_done)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Tells Keras at which epoch to begin."""
        if self._call is None:
            raise _fit_of_before()
        if self._worker.is_newcomer:
            self._join()
        self._is_begun = True
        self._marker = StepMarker.put_on(self.model)
        self._stack.callback(self._marker.take_off)
        if self._resumption is not None:
            epoch = self._present_call.epochs if self._resumption.is_done else self._resumption.state.epoch
            set_initial_epoch(self.model, epoch)

    def before_epoch(self) -> None:
        """Restores what the hooks at the begin of an epoch read: weights, optimizer, callbacks."""
        if self._is_begun and self._resumption is not None and not self._is_restored:
            self._is_restored = True
            self._restore(with_position=False)
            if self._resumption.state.position is None:
                self._resumption = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Takes note of the epoch."""
        self._epoch = epoch

    def before_steps(self, epochs: WatchedEpochs) -> None:
        """Restores all, and goes to the position in the data."""
        if self._epochs is not None:  # one more step was handed out after `before_step` was told of the last
            self._first_step = self._step + epochs.steps_per_execution
        self._epochs = epochs
        resumption, self._resumption = self._resumption, None
        if resumption is None:
            self._next_question = self._last_question = self._first_step
            return
        self._logs = resumption.state.logs
        goes_on = self._restore(with_position=True, resumption=resumption)
        self._first_step = resumption.found.step - (epochs.step if goes_on else 0)
        self._next_question = self._last_question = self._first_step + epochs.step
        if self._welcomed_until is not None:  # the others asked at this step before they took this one in
            self._next_question, self._welcomed_until = self._welcomed_until, None

    def _restore(self, *, with_position: bool, resumption: _Resumption | None = None) -> bool:
        resumption = resumption or self._resumption
        assert resumption is not None
        callbacks = self._all_callbacks()
        origin = f"{resumption.found.name} in {self._directory}"
        if not with_position:
            restore_model(self.model, callbacks, resumption.snapshot, resumption.state, origin)
            return False
        assert self._epochs is not None
        return restore_fit(
            self.model,
            callbacks,
            self._epochs,
            snapshot=resumption.snapshot,
            found=resumption.found,
            state=resumption.state,
            origin=origin,
        )

    @property
    def _present_call(self) -> FitCall:
        assert self._call is not None
        return self._call

    def _all_callbacks(self) -> list[Any]:
        given = self._present_call.callbacks
        history = getattr(self.model, "history", None)  # Keras adds one
        added = [history] if history is not None and all(history is not callback for callback in given) else []
        return [callback for callback in (*given, *added) if callback is not self]

    def before_step(self, epochs: WatchedEpochs) -> None:
        """Saves if that is due; after a signal, ends the process."""
        self._step = step = self._first_step + epochs.step
        self._worker.follow_members()
        num_newcomers = 0
        if self._worker.num_tasks == 1 and self._worker.group is None:
            signal_number = self._signals.received
            interval_s = self._schedule.interval_s
            time_has_come = interval_s is not None and time.monotonic() - self._last_save_time >= interval_s
        elif step >= self._next_question and (self._asks or self._worker.group is not None):
            signal_number, time_has_come, num_newcomers = self._ask(step)
            self._worker.follow_members()
        else:
            signal_number, time_has_come = 0, False
        if num_newcomers and not signal_number:
            self._admit_newcomers(step, epochs)
        self._worker.tell_of_saves()
        interval = self._schedule.interval_steps
        if not (signal_number or time_has_come or epochs.step == 0 or (interval and step % interval == 0)):
            return
        decision = decide_save(
            self._schedule,
            step=step,
            last_saved_step=self._last_saved_step,
            epoch_ends=epochs.step == 0 and self._num_epochs_ended > 0,
            time_has_come=time_has_come,
            request=f"signal {signal_number}" if signal_number else None,
        )
        if epochs.step > 0:
            self._logs = None
        if decision.save and self._may_save(epochs):
            self._save(step, self._epoch, epochs, wait=bool(signal_number))
        if signal_number:
            self._end_process(signal_number, step)

    def _may_save(self, epochs: WatchedEpochs) -> bool:
        if epochs.kind != "epoch" or epochs.step == 0:
            return True
        if not self._is_told_of_generator and self._worker.task == 0:
            self._is_told_of_generator = True
            logging.warning(
                "Training is saved at the ends of epochs only: its data come from a Python generator, whose position "
                "cannot be saved, nor found again in a new process. A tf.data.Dataset or a keras.utils.PyDataset can."
            )
        return False

    def _ask(self, step: int) -> tuple[int, bool, int]:
        """Learns of signals, of the chief's clock, and of newcomers of an elastic job. Collective."""
        now = time.monotonic()
        steps_before = max(step - self._last_question, 1)
        seconds_before = now - self._last_question_time
        time_has_come, longest = False, None
        if self._schedule.needs_clock:
            answer = answer_by_clock(
                self._schedule,
                step=step,
                now=now,
                last_save_time=self._last_save_time,
                seconds_per_step=seconds_before / steps_before,
            )
            time_has_come, longest = answer.save, answer.next_step - step
        steps = steps_to_next_question(steps_before=steps_before, seconds_before=seconds_before, longest=longest)
        group = self._worker.group
        newcomers = 0 if group is None or group.rank > 0 else group.client.count_newcomers()
        numbers = [self._signals.received, int(time_has_come), max(steps, 1), newcomers]
        table = numbers_of_all_workers(self._strategy, numbers)
        self._last_question, self._last_question_time = step, now
        self._next_question = step + int(table[0, 2])
        return int(table[:, 0].max()), bool(table[0, 1]), int(table[0, 3])

    def _save(self, step: int, epoch: int, epochs: WatchedEpochs | None, *, wait: bool, logs: Any = None) -> bool:
        self._worker.follow_members()
        self._last_saved_step, self._last_save_time = step, time.monotonic()
        if epochs is not None and epochs.step > 0 and epochs.num_batches is None and logs is None:
            assert self._marker is not None
            logs = epoch_logs(self.model, self._marker.logs) if self._marker.logs else self._logs
        state = FitState(
            fit=self._number,
            epoch=epoch,
            epoch_limit=self._present_call.epochs,
            is_complete=epochs is None,
            agreed_seed=job_seed.agreed_seed(),
            logs=None if logs is None else _numbers(logs),
        )
        if self._facts is None:
            self._facts = ModelFacts.of(self.model)
        snapshot = capture_fit(
            self.model,
            self._all_callbacks(),
            epochs,
            state,
            self._facts,
            is_chief=self._worker.task == 0,
            metrics=self._epoch_metrics,
        )
        with in_phase("save"):
            return self._worker.store.save(snapshot, step=step, epoch=epoch, wait=wait or not self._is_asynchronous)

    def _end_process(self, signal_number: int, step: int) -> None:
        self._worker.meet()
        logging.warning(
            "Training was asked to end by signal %d and ends after step %d with status %d, to be started again.",
            signal_number,
            step,
            self._exit_status,
        )
        self._signals.received = 0
        raise SystemExit(self._exit_status)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Takes note of the logs."""
        self._num_epochs_ended += 1
        self._epoch_metrics = _numbers(logs or {})

    def resumed_logs(self) -> dict[str, Any] | None:
        """The logs of an epoch that was resumed after its last step."""
        return self._logs

    def after_fit(self) -> None:
        """Saves the end of training and waits for it. Collective."""
        _num_fits[self._directory] = self._number + 1
        if self._resumption is not None:  # nothing was left to train
            self._restore(with_position=False)
            return
        step = self._first_step
        if self._epochs is not None:
            step = self._step + self._epochs.steps_per_execution
        self._save(step, self._epoch + 1 if self._epochs is not None else 0, None, wait=True)
        self._worker.meet()
        self._worker.tell_of_saves()

    def _close_worker(self) -> None:
        """Ends the writing thread. After an error its save may wait for a worker that is gone: it gets little time."""
        is_alone = self._worker.num_tasks == 1
        self._worker.close(_GRACE_AFTER_ERROR_S if self._has_failed and not is_alone else None)

    def after_error(self, error: BaseException) -> None:
        """Saves the state after the last whole step, where there is one process and it is known."""
        self._has_failed = not isinstance(error, SystemExit)
        if isinstance(error, SystemExit) or self._worker.num_tasks > 1:
            return
        epochs, marker = self._epochs, self._marker
        if epochs is None or marker is None or marker.is_in_step or epochs.is_exhausted or epochs.step == 0:
            return
        if not self._may_save(epochs) or self._step + epochs.steps_per_execution != self._first_step + epochs.step:
            return
        try:
            logs = epoch_logs(self.model, marker.logs) if epochs.may_be_at_end and marker.logs else None
            self._save(self._first_step + epochs.step, self._epoch, epochs, wait=True, logs=logs)
        except Exception as problem:
            logging.warning("The state at the error could not be saved: %s", problem)

    def leave_fit(self) -> None:
        """Ends the writing thread, and stops listening to signals."""
        late = self._signals.received
        self._stack.close()
        self._call = self._epochs = self._resumption = None
        if late:  # it came after the last step: its effect is the usual one
            os.kill(os.getpid(), late)


def _numbers(logs: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items() if np.ndim(value) == 0 and not isinstance(value, str)}


def _fit_of_before() -> ArgumentError:
    return ArgumentError(
        describe_problem(
            "This call of fit began before tfdist was loaded",
            received="a FaultTolerantCheckpoint that was made among the arguments of fit, for a model of no strategy",
            expected="`from tfdist.callbacks import FaultTolerantCheckpoint` before the line that calls fit",
            fix="Import it at the head of the file.",
        )
    )


def _refuse_foreign_strategy(strategy: tf.distribute.Strategy | None) -> None:
    if strategy is None or is_managed(strategy):
        return
    raise ArgumentError(
        describe_problem(
            "The model belongs to a strategy that tfdist did not make",
            received=f"a {type(strategy).__name__} (from the scope in which the model was made)",
            expected="a strategy of tfdist's, or none",
            fix="Make it with tfdist.auto_strategy() or one of the other factories.",
        )
    )
