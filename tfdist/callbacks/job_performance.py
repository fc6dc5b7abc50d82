"""What the workers of a job do, for TensorBoard: from the tables that travel with the gradients."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.balancing import summarize_rates
from tfdist.callbacks.tensorboard_runs import JOB, Runs, server_run, worker_run
from tfdist.keras_compat.gradient_norms import gradient_norms
from tfdist.keras_compat.managed_strategies import (
    elastic_group,
    exchange_of,
    is_managed,
    is_parameter_server,
    num_local_replicas,
    worker_position,
)
from tfdist.keras_compat.private_names import model_strategy
from tfdist.keras_compat.server_load import ServerLoad, ServerLoads
from tfdist.keras_compat.worker_steps import WorkerStep, observe_worker_steps, stop_observing

__all__ = ["JobPerformance"]

_MEGABYTE = 1e6
_SERVERS_EVERY_S = 5.0  # asking takes some milliseconds


class JobPerformance:
    """Averages over some steps, and writes.

    Args:
        model: What is trained.
        runs: Where to write.
        interval_steps: Over how many steps.
        alone: The examples a second of one worker alone, if known.
    """

    def __init__(self, model: Any, runs: Runs, interval_steps: int, alone: float | None) -> None:
        self._runs, self._interval_steps, self._alone = runs, interval_steps, alone
        self._strategy: Any = model_strategy(model)
        self._tables: list[np.ndarray[Any, Any]] = []
        self._worker_steps: list[WorkerStep] = []
        self._since, self._sent = time.monotonic(), 0
        self._num_steps = 0
        self._group_number: int | None = None
        self._is_asynchronous = is_parameter_server(self._strategy)
        self._servers: list[ServerLoad] = []
        if self._is_asynchronous:
            self._server_loads, self._servers_seen = ServerLoads(self._strategy), -_SERVERS_EVERY_S
            observe_worker_steps(self._strategy, self._worker_steps.append)
        elif is_managed(self._strategy):
            exchange_of(self._strategy).timings.observers.append(self._take)

    def stop(self) -> None:
        """Listens no more."""
        if self._is_asynchronous:
            stop_observing(self._strategy, self._worker_steps.append)
        elif is_managed(self._strategy):
            observers = exchange_of(self._strategy).timings.observers
            observers[:] = [observer for observer in observers if observer != self._take]

    def take_events(self) -> list[tuple[str, dict[str, Any]]]:
        """What has happened to the group of an elastic job since the last call."""
        group = elastic_group(self._strategy)
        if group is None or group.number == self._group_number:
            return []
        is_first, self._group_number = self._group_number is None, group.number
        return [] if is_first else [("re-formed", {"members": ", ".join(group.members)})]

    def is_due(self, step: int) -> bool:
        """Whether means are written after a step: the same steps, wherever a resumed training has begun."""
        return step % self._interval_steps == 0

    def before_step(self) -> None:
        """Asks the steps after which means are written for the norms of their gradients."""
        norms = gradient_norms(self._strategy) if is_managed(self._strategy) else None
        if norms is not None and self.is_due(self._runs.step + 1):
            norms.ask()

    def after_step(self, *, is_chief: bool) -> None:
        """Writes if enough steps were made."""
        self._num_steps += 1
        if not self.is_due(self._runs.step):
            return
        num_steps, self._num_steps = self._num_steps, 0
        norms = self._take_norms()
        elapsed_s = max(time.monotonic() - self._since, 1e-9)
        self._since = time.monotonic()
        if self._is_asynchronous:
            self._write_worker_steps(elapsed_s)
        elif is_managed(self._strategy):
            self._write_tables(elapsed_s, norms, is_chief=is_chief)
        else:
            self._runs.add_scalars(JOB, {"throughput/steps_per_second": num_steps / elapsed_s}, self._runs.step)
            self._runs.add_scalars(worker_run("worker 0"), _memory(), self._runs.step)

    def _take(self, table: np.ndarray[Any, Any]) -> None:
        if self._tables and self._tables[0].shape != table.shape:  # the members have changed
            self._tables = []
        self._tables.append(np.array(table, np.float64))

    def _take_norms(self) -> tuple[float, float] | None:
        """What the step that was asked has worked out, of this worker's rows and of the global batch."""
        norms = gradient_norms(self._strategy) if is_managed(self._strategy) else None
        if norms is None:
            return None
        norms.ask(is_wanted=False)
        return norms.take()

    def _write_tables(self, elapsed_s: float, norms: tuple[float, float] | None, *, is_chief: bool) -> None:
        tables, self._tables = self._tables, []
        if not tables:
            return
        runs, rates = self._runs, summarize_rates(tables)
        rank, num_workers = worker_position(self._strategy)
        group = elastic_group(self._strategy)
        num_local = num_local_replicas(self._strategy)
        own = slice(rank * num_local, (rank + 1) * num_local)
        name = f"worker {rank}" if group is None else group.members[rank]
        parts = {f"time/{part}_ms": 1000 * float(np.mean(times[own])) for part, times in rates.seconds.items()}
        values = {
            "throughput/examples_per_second": sum(rates.rows_per_s[own]),
            "time/step_ms": 1000 * float(np.mean(rates.step_s[own])),
            **parts,
            **_memory(),
            **self._sent_bytes(elapsed_s),
        }
        if norms is not None:
            values["gradient/norm"] = norms[0]
        runs.add_scalars(worker_run(name), values, runs.step)
        if not is_chief:
            return
        job = {
            "throughput/examples_per_second": rates.total_rows_per_s,
            "throughput/steps_per_second": rates.steps_per_s,
            "balance/imbalance": rates.imbalance,
            "balance/workers": float(num_workers),
        }
        if norms is not None:
            job["gradient/norm"] = norms[1]
        if self._alone:
            job["throughput/scaling_efficiency"] = rates.total_rows_per_s / (num_workers * self._alone)
        runs.add_scalars(JOB, job, runs.step)

    def _sent_bytes(self, elapsed_s: float) -> dict[str, float]:
        transport = getattr(exchange_of(self._strategy), "transport", None)
        sent = getattr(transport, "sent_bytes", None)
        if sent is None:
            return {}
        before, self._sent = self._sent, sent
        return {"network/sent_mb_per_second": max(0, sent - before) / _MEGABYTE / elapsed_s}

    def _write_worker_steps(self, elapsed_s: float) -> None:
        """Of parameter servers: the coordinator tells of all workers."""
        made, runs = list(self._worker_steps), self._runs
        del self._worker_steps[: len(made)]
        for worker in sorted({step.worker for step in made}):
            own = [step for step in made if step.worker == worker]
            count = sum(step.num_steps for step in own)
            values = {
                "throughput/steps_per_second": count / elapsed_s,
                "time/step_ms": 1000 * sum(step.seconds for step in own) / count,
                "asynchronous/staleness": float(np.mean([step.staleness for step in own])),
            }
            runs.add_scalars(worker_run(f"worker {worker}"), values, runs.step)
        total = sum(step.num_steps for step in made)
        job = {"throughput/steps_per_second": total / elapsed_s}
        if made:
            job["asynchronous/steps_under_way"] = float(np.mean([step.num_under_way for step in made]))
            job["asynchronous/staleness"] = float(np.mean([step.staleness for step in made]))
        runs.add_scalars(JOB, {**job, **_memory()}, runs.step)
        self._write_servers()

    def _write_servers(self) -> None:
        elapsed_s = time.monotonic() - self._servers_seen
        if elapsed_s < _SERVERS_EVERY_S:
            return
        before, self._servers = self._servers, self._server_loads.look()
        self._servers_seen = time.monotonic()
        for index, load in enumerate(self._servers):
            values = {"memory/host_mb": load.memory_bytes / _MEGABYTE}
            if len(before) == len(self._servers):
                values["load/busy_cores"] = (load.cpu_s - before[index].cpu_s) / elapsed_s
            self._runs.add_scalars(server_run(index), values, self._runs.step)


def _memory() -> dict[str, float]:
    """Of this process and its GPUs, in megabytes."""
    found: dict[str, float] = {}
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["memory/host_mb"] = pages * os.sysconf("SC_PAGE_SIZE") / _MEGABYTE
    except (OSError, ValueError, IndexError):  # not Linux: the largest it has been
        found["memory/host_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    for index, _ in enumerate(tf.config.list_logical_devices("GPU")):
        found[f"memory/gpu_{index}_mb"] = tf.config.experimental.get_memory_info(f"GPU:{index}")["current"] / _MEGABYTE
    return found
