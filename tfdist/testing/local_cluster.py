"""`LocalCluster`: a real cluster of processes on this machine, for tests that look at or kill single tasks."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tfdist.cluster.job_environment import ElasticEnvironment, JobEnvironment
from tfdist.cluster.job_reports import file_stem
from tfdist.launching.guard import JobGuard
from tfdist.launching.plan import (
    TaskPlan,
    build_task_env,
    count_ports,
    plan_elastic_tasks,
    plan_tasks,
    threads_per_task,
)
from tfdist.launching.ports import choose_free_ports
from tfdist.launching.process import TaskProcess
from tfdist.rendezvous.membership import Rules
from tfdist.rendezvous.server import RendezvousServer

_POLL_INTERVAL_S = 0.02
_SHOWN_CHARACTERS = 6000


@dataclass(frozen=True)
class TaskResult:
    """How one task ended.

    Attributes:
        returncode: Its exit status (negative: the signal that killed it).
        stdout: What it wrote to standard output, over all its starts.
        stderr: What it wrote to standard error, over all its starts.
    """

    returncode: int
    stdout: str
    stderr: str


class LocalCluster:
    """Runs one Python script as every task of a cluster, and lets a test kill and restart single tasks.

    The tasks get the TF_CONFIG that the launcher would give them, with ports that the system chooses; a single worker
    gets none. On leaving the context every process is killed and reaped. To be used in the main thread.

    Example:
        >>> with LocalCluster(workers=2, script="print('hello')", time_limit_s=60) as cluster:
        ...     results = cluster.join()
        >>> results["worker 1"].stdout.strip()
        'hello'

    Args:
        workers: How many workers.
        fewest_workers: For an elastic job, how few of them it may have; no task gets a TF_CONFIG then.
        ps: How many parameter servers; above 0 there is a chief, too.
        evaluator: Whether there is an evaluator.
        script: The path of a script, or source text (a string with a line break or that names no file).
        args: The script's arguments.
        env: Environment variables to add to this process's.
        time_limit_s: How long the whole cluster may live.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        fewest_workers: int | None = None,
        ps: int = 0,
        evaluator: bool = False,
        script: str | Path,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        time_limit_s: float = 120.0,
    ):
        if fewest_workers is None:
            plans = plan_tasks(workers, ps, evaluator, choose_free_ports(count_ports(workers, ps)))
        else:
            plans = plan_elastic_tasks(workers)
        self._fewest, self._most = fewest_workers, workers
        self._plans = {plan.name: plan for plan in plans}
        self._num_threads = threads_per_task(len(os.sched_getaffinity(0)), workers, len(self._plans))
        self._script, self._args, self._env = script, list(args), {**os.environ, **(env or {})}
        self._time_limit_s = time_limit_s
        self._processes: dict[str, TaskProcess] = {}
        self._stack = ExitStack()

    def __enter__(self) -> LocalCluster:
        self._guard = self._stack.enter_context(JobGuard())
        self._deadline = time.monotonic() + self._time_limit_s
        if not isinstance(self._script, Path) and ("\n" in self._script or not Path(self._script).is_file()):
            path = self.directory / "script.py"
            path.write_text(textwrap.dedent(self._script))
            self._script = path
        self._elastic: ElasticEnvironment | None = None
        try:
            if self._fewest is not None:
                rendezvous = RendezvousServer(Rules(self._fewest, self._most), self._guard.secret)
                self._stack.callback(rendezvous.close)
                self._elastic = ElasticEnvironment(rendezvous.address, self._fewest, self._most)
            for name in self._plans:
                self.start(name)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and hasattr(error, "add_note"):
            error.add_note(self.describe())
        self._stack.close()

    @property
    def directory(self) -> Path:
        """A temporary directory that lives as long as the context; the tasks see it as TFDIST_REPORT_DIR."""
        return self._guard.directory

    @property
    def task_names(self) -> tuple[str, ...]:
        """The tasks, such as `chief`, `worker 0`, `ps 0`."""
        return tuple(self._plans)

    def tf_config(self, name: str) -> str | None:
        """The TF_CONFIG of a task."""
        return self._plans[name].tf_config

    def pid(self, name: str) -> int:
        """The process number of a task's latest start."""
        return self._processes[name].pid

    def start(self, name: str) -> None:
        """Starts a task that does not run."""
        plan: TaskPlan = self._plans[name]
        job = JobEnvironment(self._guard.job_id, str(self.directory), name, self._guard.secret)
        env = build_task_env(plan, job, self._env, self._num_threads, self._elastic)
        with self._log(name, "stdout").open("ab") as stdout, self._log(name, "stderr").open("ab") as stderr:
            process = TaskProcess([sys.executable, "-u", str(self._script), *self._args], env, stdout, stderr)
        self._processes[name] = process
        self._guard.add(process)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to a task and its children; after SIGKILL, waits until it is gone."""
        self._processes[name].send(number)
        if number == signal.SIGKILL:
            self._processes[name].wait()

    def restart(self, name: str) -> None:
        """Kills a task, if it still runs, and starts it again with the same address."""
        self.kill(name)
        self._guard.remove(self._processes[name])
        self.start(name)

    def returncode(self, name: str) -> int | None:
        """A task's exit status; None while it runs."""
        return self._processes[name].poll()

    def stdout(self, name: str) -> str:
        """What a task has written to standard output so far."""
        return self._log(name, "stdout").read_text(errors="replace")

    def stderr(self, name: str) -> str:
        """What a task has written to standard error so far."""
        return self._log(name, "stderr").read_text(errors="replace")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until a condition holds.

        Args:
            condition: Asked again and again.
            what: What is waited for, for the message.

        Raises:
            AssertionError: The time limit of the cluster has passed; the message has the logs of all tasks.
        """
        while not condition():
            if time.monotonic() > self._deadline:
                raise AssertionError(f"No sign of {what} within {self._time_limit_s} s.\n{self.describe()}")
            time.sleep(_POLL_INTERVAL_S)

    def wait_for_output(self, name: str, text: str) -> None:
        """Waits until a task has written a text to standard output; see `wait_for`."""
        self.wait_for(lambda: text in self.stdout(name), f"{text!r} in the output of {name}")

    def join(self, *names: str, check: bool = True) -> dict[str, TaskResult]:
        """Waits until tasks have ended.

        Args:
            *names: The tasks; none named means all.
            check: Whether they have to end with status 0.

        Returns:
            How each of them ended, by name.

        Raises:
            AssertionError: The time limit has passed, or `check` and a task failed; the message has all logs.
        """
        chosen = names or self.task_names
        waited_for = f"the end of {', '.join(chosen)}"
        self.wait_for(lambda: all(self.returncode(name) is not None for name in chosen), waited_for)
        results = {
            name: TaskResult(self._processes[name].wait(), self.stdout(name), self.stderr(name)) for name in chosen
        }
        failed = [name for name, result in results.items() if result.returncode]
        if check and failed:
            raise AssertionError(f"{', '.join(failed)} failed.\n{self.describe()}")
        return results

    def describe(self) -> str:
        """The state and the end of the logs of every task, for a message."""
        parts = []
        for name in self._processes:
            status = self.returncode(name)
            parts.append(f"=== {name}: {'still running' if status is None else f'ended with status {status}'}")
            for stream, text in (("stdout", self.stdout(name)), ("stderr", self.stderr(name))):
                parts.append(f"--- {name} {stream}\n{text[-_SHOWN_CHARACTERS:]}")
        return "\n".join(parts)

    def _log(self, name: str, stream: str) -> Path:
        return self.directory / f"{file_stem(name)}.{stream}"
