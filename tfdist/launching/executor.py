"""Runs a job: one attempt after another, as `restarts` decides."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from types import FrameType

from tfdist.cluster.job_events import JobEvent
from tfdist.errors import LaunchError, describe_problem
from tfdist.launching.attempt import Attempt
from tfdist.launching.guard import JobGuard
from tfdist.launching.job_options import JobOptions
from tfdist.launching.meeting import meet
from tfdist.launching.plan import count_ports, plan_elastic_tasks, plan_tasks
from tfdist.launching.ports import choose_free_ports
from tfdist.launching.restarts import AttemptEnd, GiveUp, decide_restart

_TICK_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def run_job(options: JobOptions, env: Mapping[str, str]) -> int:
    """Runs a job to its end. To be called in the main thread of a process that has no other.

    Args:
        options: What to run.
        env: The launcher's environment, which the tasks inherit.

    Returns:
        The exit status: 0, that of the first failure, or 128 + the signal that ended the launcher.

    Raises:
        LaunchError: The system refuses a port, a process or a file. What had been started is ended.
    """
    try:
        with _signals_noted() as signals, _meeting(options, env):
            return _run_attempts(options, env, signals)
    except OSError as error:
        raise LaunchError(
            describe_problem(
                f"The system refuses what the job needs: {error}",
                received=f"--workers={options.workers}, --ps={options.parameter_servers} (from the command line)",
                expected="ports, processes and files for every task",
                fix="start fewer tasks, or raise the limits that `ulimit -a` shows",
            )
        ) from error


def _meeting(options: JobOptions, env: Mapping[str, str]) -> AbstractContextManager[object]:
    """Where the nodes meet, as long as the job lasts; nothing on one machine."""
    if options.meeting is None:
        return nullcontext()
    return meet(options.meeting, options.membership_rules(env), env, options.rules.start_timeout_s)


def _run_attempts(options: JobOptions, env: Mapping[str, str], signals: deque[signal.Signals]) -> int:
    """Starts the job, and starts it again as often as `restarts` decides."""
    ends: list[AttemptEnd] = []
    told: list[JobEvent] = []
    while True:
        attempt = _run_attempt(options, env, signals, number=len(ends), told=told)
        with closing(attempt.events):
            if attempt.message:
                attempt.console.write_note(attempt.message)
            if attempt.end is None:
                return attempt.status
            ends.append(attempt.end)
            decision = decide_restart(options.restarts, ends)
            if isinstance(decision, GiveUp):
                if decision.reason:
                    attempt.console.write_note(f"the job is not started again: {decision.reason}")
                return attempt.status
            attempt.events.write("waiting", seconds=decision.delay_s, reason=decision.reason, tier=2)
        told = attempt.events.told
        attempt.console.write_note(
            f"attempt {len(ends)} follows in {decision.delay_s:g} s: attempt {len(ends) - 1} {decision.reason}"
        )
        if not _sleep(decision.delay_s, signals):
            return 128 + signals[0]


def _sleep(delay_s: float, signals: deque[signal.Signals]) -> bool:
    """Waits; returns whether nobody ended the job meanwhile."""
    until = time.monotonic() + delay_s
    while not signals and time.monotonic() < until:
        time.sleep(_TICK_S)
    return not signals


def _run_attempt(
    options: JobOptions,
    env: Mapping[str, str],
    signals: deque[signal.Signals],
    *,
    number: int,
    told: Sequence[JobEvent],
) -> Attempt:
    if options.fewest_workers is None:
        ports = choose_free_ports(count_ports(options.workers, options.parameter_servers))
        plans = plan_tasks(options.workers, options.parameter_servers, options.evaluator, ports)
    else:
        plans = plan_elastic_tasks(options.workers)
    with JobGuard() as guard, selectors.DefaultSelector() as selector:
        attempt = Attempt(options, plans, guard, selector, signals, number=number, earlier=told)
        attempt.start(env)
        attempt.attend()
    return attempt


@contextmanager
def _signals_noted() -> Iterator[deque[signal.Signals]]:
    """Collects the signals that ask the launcher to end. A third Ctrl-C ends it at once; the watchdog does the rest."""
    signals: deque[signal.Signals] = deque()
    interrupts = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        del frame
        interrupts += number == signal.SIGINT
        if interrupts > 2:
            os._exit(128 + number)
        signals.append(signal.Signals(number))

    previous = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
