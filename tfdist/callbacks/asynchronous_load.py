"""What a `LoadBalanceMonitor` sees of parameter-server training, on the coordinator."""

from __future__ import annotations

import collections
import re
import statistics
from dataclasses import dataclass
from typing import Any

from tfdist.balancing import (
    AsynchronousLoad,
    Rules,
    describe_asynchronous_load,
    format_asynchronous_load,
)
from tfdist.keras_compat.managed_strategies import cluster_of
from tfdist.keras_compat.partitioned_variables import shards_of
from tfdist.keras_compat.private_names import variable_value
from tfdist.keras_compat.worker_steps import WorkerStep, observe_worker_steps, stop_observing

__all__ = ["AsynchronousReport", "AsynchronousWatch"]

_NEWEST = 200  # steps of a worker whose times count


@dataclass(frozen=True)
class AsynchronousReport:
    """The load of workers and parameter servers since training began, as text."""

    load: AsynchronousLoad
    rules: Rules

    def __str__(self) -> str:
        """A table, and what there is to say."""
        said = describe_asynchronous_load(self.load, self.rules) or ["All workers take about as long."]
        return "\n".join([format_asynchronous_load(self.load), *said])

    __repr__ = __str__


class AsynchronousWatch:
    """Counts the steps of each worker.

    Args:
        model: What is trained.
        rules: The tolerance is theirs.
    """

    def __init__(self, model: Any, rules: Rules) -> None:
        self._model, self._rules = model, rules
        self._num_steps: collections.Counter[int] = collections.Counter()
        self._seconds: dict[int, collections.deque[float]] = {}
        observe_worker_steps(model.distribute_strategy, self._take)

    def stop(self) -> None:
        """Counts no more."""
        stop_observing(self._model.distribute_strategy, self._take)

    def report(self) -> AsynchronousReport | None:
        """What was counted; None before the first step has ended."""
        if not self._num_steps:
            return None
        seconds = {worker: statistics.median(newest) for worker, newest in self._seconds.items()}
        return AsynchronousReport(
            AsynchronousLoad(dict(self._num_steps), seconds, _server_bytes(self._model)), self._rules
        )

    def _take(self, step: WorkerStep) -> None:
        is_first = step.worker not in self._num_steps  # it has built the graph
        self._num_steps[step.worker] += step.num_steps
        newest = self._seconds.setdefault(step.worker, collections.deque(maxlen=_NEWEST))
        newest.append(step.seconds / step.num_steps)
        if not is_first and len(newest) == 2:
            newest.popleft()


def _server_bytes(model: Any) -> list[int]:
    held = [0] * len(cluster_of(model.distribute_strategy).cluster["ps"])
    for variable in model.trainable_variables:
        for part in shards_of(variable) or [variable_value(variable)]:
            found = re.search(r"/job:ps/.*task:(\d+)", part.device)
            if found is not None:
                held[int(found[1])] += part.shape.num_elements() * part.dtype.size
    return held
