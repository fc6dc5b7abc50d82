"""`tfdist.run`: what a job needs around a training function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from tfdist.environment import cluster_config
from tfdist.errors import ArgumentError, describe_problem
from tfdist.reporting import report_failure, report_progress

Result = TypeVar("Result")


def run(
    train: Callable[[], Result],
    *,
    evaluate: Callable[[], Result] | None = None,
    coordinator_grace_s: float = 60.0,
) -> Result:
    """Runs a training function as the task that this process is.

    - On a task that trains (a worker, the chief, a process alone) it calls `train`.
    - On a `worker` or `ps` task of a parameter-server cluster it serves the coordinator, never calls `train`, and ends
      the process with status 0 when the coordinator has ended: code after this call does not run there.
    - On an `evaluator` task it calls `evaluate`.

    An exception of `train` or `evaluate` goes to the caller; before, the launcher is told of it, so that it can show
    the first cause of a job's failure first. The cluster is that of `tfdist.cluster_config()`.

    Every task of the job calls this.

    Args:
        train: Builds the strategy and the model, and trains.
        evaluate: What an evaluator does, such as evaluating each new checkpoint. It should return when training has
            ended; the launcher ends it some time after that.
        coordinator_grace_s: On a serving task, how long the coordinator may be unreachable, in seconds, before the
            task takes it for ended.

    Returns:
        What `train` or `evaluate` returned.

    Raises:
        ClusterConfigError: The description of the cluster breaks a rule.
        ArgumentError: This is an evaluator task, and there is no `evaluate`.
        ServerStartError: On a serving task: TensorFlow's server cannot start, as when its port is taken.
        TimeLimitError: On a serving task: the coordinator did not appear within TFDIST_START_TIMEOUT_S.
    """
    with _failures_reported():
        config = cluster_config()
        report_progress("started")
        if config.has_parameter_servers and config.task_type in ("worker", "ps"):
            from tfdist.running.serving import serve

            serve(config, coordinator_grace_s=coordinator_grace_s)
        function = train
        if config.task_type == "evaluator":
            if evaluate is None:
                raise ArgumentError(
                    describe_problem(
                        "This process is an evaluator, but the script does not say what an evaluator does",
                        received="evaluate=None (from the call of tfdist.run)",
                        expected="a function, as the cluster has an evaluator task",
                        fix="call tfdist.run(train, evaluate=your_function), or start the job without an evaluator",
                    )
                )
            function = evaluate
        result = function()
        report_progress("ended")
        return result


@contextlib.contextmanager
def _failures_reported() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        report_failure(error)
        raise
    except SystemExit as exit_request:
        if exit_request.code not in (None, 0):
            report_failure(exit_request)
        raise
