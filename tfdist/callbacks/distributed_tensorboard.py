"""TensorBoard for a whole job: the curves of training once, and what each worker does."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from tfdist.callbacks import summaries
from tfdist.callbacks.job_performance import JobPerformance
from tfdist.callbacks.profiled_steps import ProfiledSteps
from tfdist.callbacks.tensorboard_layout import layout_summary
from tfdist.callbacks.tensorboard_runs import JOB, TRAIN, VALIDATION, Runs
from tfdist.cluster.job_environment import parse_job_environment
from tfdist.cluster.job_events import JobEvent
from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.managed_strategies import cluster_of, elastic_group, is_chief, is_managed
from tfdist.keras_compat.private_names import model_strategy
from tfdist.reporting.events import observe_events, stop_observing_events
from tfdist.reporting.launcher_events import LauncherEvents

__all__ = ["DistributedTensorBoard"]

#: What only the launcher sees. That the job began anew, each attempt tells of itself.
_OF_LAUNCHER = ("lost", "hang", "restarted")

Log = Callable[[dict[str, float], int], object]


class DistributedTensorBoard(keras.callbacks.Callback):
    """Writes what an unmodified TensorBoard shows of a job of any number of workers.

    Every worker makes it, with the same arguments and a directory that all see. The chief alone writes the curves, with
    the tags of Keras's own callback: in the runs `train` and `validation` by epoch (and with `update_freq` by step) the
    metrics of `fit`, which are those of the global batches, and the learning rate. In the run `job` it writes
    throughput, imbalance, events and a page layout for TensorBoard's custom scalars. Every worker writes a run of its
    own, `workers/worker_0` and so on: examples a second, where the time of a step goes, memory, bytes sent.

    With a `FaultTolerantCheckpoint` beside it, a training that is started again, and an elastic job that has lost its
    chief, go on in the same curves: points after the checkpoint are taken out of the files before they are written
    anew, so that each stands there once. A training that begins anew in a directory hides the curves of the one before.

    Points are written by a thread, at the latest after 5 seconds, before each checkpoint, and when Python ends. What
    cannot be written is given up with one warning.

    Args:
        log_dir: The directory, a path or a URL that `tf.io.gfile` knows; the same for all workers.
        update_freq: `"epoch"`; or `"batch"` or a number of steps, to write the metrics so far every so many steps, too.
            That makes workers put their metrics together at every step.
        histogram_freq: After how many epochs to write histograms of the weights; 0 for never.
        write_graph: Whether to write the layers of the model.
        images: A function of the number of an epoch that has ended, to arrays of pictures by tag, `(number, height,
            width, channels)`; only the chief calls it.
        performance_freq: Over how many steps performance is averaged.
        examples_per_second_alone: What one worker did alone, if known: then the scaling efficiency is written.
        profile_steps: The first and the last step of a profile, from 1; None for no profile.
        profile_workers: Which workers make one, by index; all by default.
        log: Gets the chief's numbers, too: a dictionary by run and tag, and the number of steps so far; such as
            `wandb.log` or `mlflow.log_metrics`.

    Attributes:
        needs_timings: Always: steps tell of their time (`tfdist.callbacks.LoadBalanceMonitor`).
        needs_gradient_norms: Always: steps work the norms of gradients out when they are asked.
        needs_staleness: Always: steps under parameter servers count the updates of others.
        reads_batch_logs: Whether it looks at the logs of steps.

    Raises:
        ArgumentError: `update_freq`, `performance_freq` or `profile_steps` is out of range.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        *,
        update_freq: str | int = "epoch",
        histogram_freq: int = 0,
        write_graph: bool = True,
        images: Callable[[int], Mapping[str, Any]] | None = None,
        performance_freq: int = 20,
        examples_per_second_alone: float | None = None,
        profile_steps: tuple[int, int] | None = None,
        profile_workers: Sequence[int] | None = None,
        log: Log | None = None,
    ) -> None:
        super().__init__()
        self._interval = {"epoch": 0, "batch": 1}.get(str(update_freq), update_freq)
        _check(self._interval, update_freq, performance_freq, profile_steps)
        self._log_dir = os.fspath(log_dir)
        self._histogram_freq, self._write_graph, self._images = histogram_freq, write_graph, images
        self._performance_freq, self._alone = performance_freq, examples_per_second_alone
        self._profile = profile_steps and ProfiledSteps(self._log_dir, profile_steps, profile_workers)
        self._log = log
        self._runs: Runs | None = None
        self._performance: JobPerformance | None = None
        self._events: collections.deque[tuple[str, dict[str, Any]]] = collections.deque()
        self._num_events: collections.Counter[str] = collections.Counter()
        self._launcher, self._launcher_state = LauncherEvents(), dict[str, float]()
        self._has_begun = self._is_resumed = self._was_chief = False
        self.needs_timings = self.needs_gradient_norms = self.needs_staleness = True
        self.reads_batch_logs = bool(self._interval)

    @property
    def _is_chief(self) -> bool:
        strategy = model_strategy(self.model)
        return not is_managed(strategy) or is_chief(strategy)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Begins to listen. Nothing is written before a checkpoint had the chance to say where training goes on."""
        self._stop_listening()
        if self._runs is None:
            self._runs = Runs(self._log_dir, self._log)
        self._runs.begin()
        self._launcher, self._launcher_state = LauncherEvents(), {}
        self._has_begun = self._is_resumed = False
        self._was_chief = self._is_chief
        self._performance = JobPerformance(self.model, self._runs, self._performance_freq, self._alone)
        observe_events(self._note)

    def get_state(self) -> dict[str, Any]:
        """How far the curves have come, for a checkpoint; `FaultTolerantCheckpoint` calls it, on every worker."""
        if self._runs is None:
            return {}
        return {**self._runs.state(), "num_events": dict(self._num_events), "launcher": self._launcher.state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint; `FaultTolerantCheckpoint` calls it, on every worker."""
        if self._runs is not None and state:
            self._num_events = collections.Counter(state["num_events"])
            self._launcher_state = state["launcher"]
            self._runs.go_on(state)
            self._is_resumed = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """With `initial_epoch`, goes on after the steps that the optimizer has made."""
        if self._runs is not None and not self._has_begun and epoch > 0 and self._runs.epoch == 0:
            self._runs.go_on_after(int(self.model.optimizer.iterations), epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Begins a profile if it is time."""
        if not self._has_begun:
            self._begin()
        if self._profile:
            self._profile.before_step(self._present_runs.step + 1, self.model)
        if self._performance is not None:
            self._performance.before_step()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Writes what is due by step."""
        runs = self._present_runs
        runs.step += 1
        if self._profile:
            self._profile.after_step(runs.step)
        is_chief = self._is_chief
        if is_chief and not self._was_chief:
            runs.take_over()
            self._was_chief = True
        if is_chief and self._interval and runs.step % int(self._interval) == 0:
            runs.add_scalars(TRAIN, {f"batch_{name}": value for name, value in (logs or {}).items()}, runs.step)
        assert self._performance is not None
        self._performance.after_step(is_chief=is_chief)
        if self._performance.is_due(runs.step):
            self._note_launcher(self._launcher.take())
        self._write_events(is_chief=is_chief)

    def on_test_end(self, logs: Any = None) -> None:
        """Writes the metrics of an evaluation beside the number of updates, as Keras's own callback does."""
        if self._runs is None:
            self._runs = Runs(self._log_dir, self._log)
        optimizer = getattr(self.model, "optimizer", None)
        if not self._is_chief or optimizer is None:
            return
        updates = int(optimizer.iterations)
        values = {f"evaluation_{name}_vs_iterations": value for name, value in (logs or {}).items()}
        self._runs.add_scalars(VALIDATION, values, updates)
        self._runs.evaluation = updates
        if not self._runs.is_training:
            self._runs.close()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes what is due by epoch."""
        runs = self._present_runs
        self._note_launcher(self._launcher.take())
        if self._is_chief:
            logs = logs or {}
            train = {f"epoch_{name}": value for name, value in logs.items() if not name.startswith("val_")}
            runs.add_scalars(TRAIN, {**train, **self._learning_rates()}, epoch)
            validation = {f"epoch_{name[4:]}": value for name, value in logs.items() if name.startswith("val_")}
            runs.add_scalars(VALIDATION, validation, epoch)
            if self._histogram_freq and epoch % self._histogram_freq == 0:
                for layer in self.model.layers:
                    for weight in layer.weights:
                        tag = f"{weight.path.replace(':', '_')}/histogram"
                        runs.add(TRAIN, summaries.histogram(tag, keras.ops.convert_to_tensor(weight).numpy()), epoch)
            for tag, pictures in (self._images(epoch) if self._images else {}).items():
                runs.add(TRAIN, summaries.images(f"epoch_{tag}", pictures), epoch)
            self._write_events(is_chief=True)
        runs.epoch = epoch + 1

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Writes the rest."""
        if self._profile:
            self._profile.stop()
        self._write_events(is_chief=self._is_chief)
        self._stop_listening()
        self._present_runs.end()

    @property
    def _present_runs(self) -> Runs:
        assert self._runs is not None
        return self._runs

    def _stop_listening(self) -> None:
        stop_observing_events(self._note)
        if self._performance is not None:
            self._performance.stop()

    def _begin(self) -> None:
        """Before the first step: what is written once."""
        self._has_begun = True
        self._note_launcher(self._launcher.take_after(self._launcher_state))
        if not self._is_chief:
            return
        runs = self._present_runs
        runs.add(JOB, layout_summary(with_efficiency=self._alone is not None), 0)
        self._write_cluster()
        if self._write_graph:
            runs.add(TRAIN, summaries.keras_model(self.model), 0)
        job = parse_job_environment(os.environ)
        if job is not None and job.attempt > 0:
            self._events.append(("restart", {"attempt": job.attempt}))
        if self._is_resumed:
            self._events.append(("resumed", {"step": runs.step}))

    def _write_cluster(self) -> None:
        strategy: Any = model_strategy(self.model)
        if not is_managed(strategy):
            return
        group, cluster = elastic_group(strategy), cluster_of(strategy)
        rows: list[tuple[str, str]] = []
        if group is not None:
            rows = [(name, "elastic") for name in group.members]
        else:
            for kind, addresses in cluster.cluster.items():
                rows += [(f"{kind} {index}", address) for index, address in enumerate(addresses)]
        kind = type(strategy).__name__
        devices = str(strategy.num_replicas_in_sync)
        rows = rows or [("this process", "local")]
        table = [(task, address, kind, devices) for task, address in rows]
        self._present_runs.add(JOB, summaries.table("cluster", ("task", "address", "strategy", "replicas"), table), 0)

    def _note(self, event: str, fields: dict[str, Any]) -> None:
        if event != "resumed":  # of which the restored state tells: the event came before `on_train_begin`
            self._events.append((event, fields))

    def _note_launcher(self, events: Sequence[JobEvent]) -> None:
        for event in events:
            if event.event in _OF_LAUNCHER:
                self._events.append((event.event, event.fields))

    def _write_events(self, *, is_chief: bool) -> None:
        assert self._performance is not None
        for event, fields in self._performance.take_events():
            self._note(event, fields)
        runs, counts, said = self._present_runs, dict[str, float](), list[str]()
        while self._events:
            event, fields = self._events.popleft()
            self._num_events[event] += 1
            counts[f"events/{event}"] = self._num_events[event]
            described = ", ".join(f"{name}: {_in_words(value)}" for name, value in fields.items())
            said.append(f"**{event}** after step {runs.step}. {described}")
        if is_chief and said:
            runs.add_scalars(JOB, counts, runs.step)
            runs.add(JOB, summaries.text("events/what", "\n\n".join(said)), runs.step)

    def _learning_rates(self) -> dict[str, float]:
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        several = getattr(optimizer, "optimizers", None)
        if several is not None:
            return {f"epoch_learning_rate_{each.name}": _rate(each) for each in several}
        return {"epoch_learning_rate": _rate(optimizer)} if hasattr(optimizer, "learning_rate") else {}


def _in_words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _rate(optimizer: Any) -> float:
    return float(optimizer.learning_rate)


def _check(interval: Any, update_freq: Any, performance_freq: int, profile_steps: Any) -> None:
    steps = profile_steps or (1, 1)
    if (
        not isinstance(interval, int)
        or interval < 0
        or (interval == 0 and update_freq != "epoch")
        or performance_freq < 1
        or len(steps) != 2
        or not 1 <= steps[0] <= steps[1]
    ):
        raise ArgumentError(
            describe_problem(
                "DistributedTensorBoard cannot be made",
                received=f"update_freq={update_freq!r}, performance_freq={performance_freq!r}, "
                f"profile_steps={profile_steps!r}",
                expected="'epoch', 'batch' or a number of steps, at least 1; a number of steps, at least 1; the first "
                "and the last step of a profile, from 1, or None",
                fix="Leave them out, or pass such values.",
            )
        )
