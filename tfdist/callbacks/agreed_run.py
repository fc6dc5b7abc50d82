"""What all workers have to know before they save or restore together: the run's name, and the checkpoint chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tfdist.errors import CheckpointError, describe_problem
from tfdist.keras_compat.agreement import numbers_of_all_workers
from tfdist.keras_compat.managed_strategies import worker_position
from tfdist.snapshots import CheckpointStore, new_run

__all__ = ["AgreedRun", "agree_on_run"]

_MAX_NAME_BYTES = 200
_FAILED = -1


@dataclasses.dataclass(frozen=True)
class AgreedRun:
    """What the workers agreed on.

    Attributes:
        store: This worker's store, under the name of the run.
        run: That name.
        chosen: The checkpoint to restore, if there is one.
    """

    store: CheckpointStore
    run: str
    chosen: str | None


def agree_on_run(strategy: Any, make_store: Callable[[str], CheckpointStore]) -> AgreedRun:
    """The chief draws the name and chooses; all learn of it. Collective.

    Args:
        strategy: The model's strategy, if any.
        make_store: Makes a store for a run.

    Raises:
        CheckpointError: There are checkpoints, and none can be used.
        OSError: The chief cannot read the directory.
    """
    run = new_run()
    task, num_tasks = (0, 1) if strategy is None else worker_position(strategy)
    if num_tasks == 1:
        store = make_store(run)
        return AgreedRun(store, run, store.choose())
    run = f"{int(numbers_of_all_workers(strategy, [int(run, 16)])[0, 0]):08x}"
    store = make_store(run)
    problem, name = None, b""
    if task == 0:
        try:
            name = (store.choose() or "").encode()
        except (CheckpointError, OSError) as error:
            problem = error
    told = numbers_of_all_workers(strategy, [_FAILED if problem else len(name), *name.ljust(_MAX_NAME_BYTES)])[0]
    if problem is not None:
        raise problem
    if told[0] == _FAILED:
        raise CheckpointError(
            describe_problem(
                "The chief cannot read the checkpoints",
                received=f"{store.directory} (from the argument directory)",
                expected="a directory of checkpoints that the chief can read",
                fix="Look at the chief's error.",
            )
        )
    return AgreedRun(store, run, bytes(told[1 : 1 + told[0]].tolist()).decode() or None)
