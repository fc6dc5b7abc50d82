"""The life of a job as a pure state machine: what has happened so far, and so what to do next.

The executor tells it of each event with the time, and gets a new state and decisions, each with its reason. Nothing
here looks at a clock, a process or a file.

The rules:

- The tasks that train are the chief of a parameter-server cluster, else the workers. The job ends well when they have
  all ended with status 0.
- Then helpers (workers and parameter servers that a chief coordinates) are asked to end, and their status does not
  count. An evaluator may go on for `evaluator_grace_s`.
- A task that ends with another status, without having been asked to end, fails the job. The others get
  `failure_grace_s`, in which their own reports of the failure arrive, and are then asked to end.
- A task that was asked to end and has not within `kill_grace_s` is killed; `stop_grace_s` it is when somebody ended the
  job, so that a checkpoint can be saved.
- A task that does not reach the phase `connecting` within `start_timeout_s` of the first one fails the job, and so does
  one that ends before it, while another waits in that phase. Jobs in which no task reports phases are not judged.
- Under parameter servers, a worker that fails after the coordinator has connected is started again while the budget
  lasts (`Elasticity`); the coordinator takes it back.
- In an elastic job (`Elasticity`), a worker that fails is lost, and no failure of the job as long as enough others
  live. It is started again while the budget lasts, after a delay that doubles. The job ends well when a worker has
  ended with status 0 and the others have followed: those that have not within `end_grace_s` are asked to.
- SIGINT, SIGTERM, SIGHUP or SIGUSR1 to the launcher asks all to end; a second SIGINT kills them. When every task that
  trains then ends with EX_TEMPFAIL, as one does that has saved and wants to be started again, so does the launcher.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace

from tfdist.launching.decisions import (
    Ask,
    ClockTicked,
    Decision,
    Event,
    Finish,
    Kill,
    Lose,
    PhaseReported,
    SignalReceived,
    Start,
    TaskExited,
    describe_exit,
    exit_status,
)
from tfdist.launching.restarts import is_preemption

_CONNECTED = ("connected", "training")


@dataclass(frozen=True)
class LifecycleRules:
    """The time limits of a job, in seconds. Every one is named by the option or the constant that sets it."""

    start_timeout_s: float = 300.0
    evaluator_grace_s: float = 600.0
    failure_grace_s: float = 2.0
    kill_grace_s: float = 10.0
    stop_grace_s: float = 30.0
    end_grace_s: float = 60.0
    replacement_delay_s: float = 1.0
    replacement_max_delay_s: float = 60.0


@dataclass(frozen=True)
class Elasticity:
    """How a job may lose workers: an elastic one, or one with parameter servers.

    Attributes:
        fewest_workers: With fewer an elastic job does not go on.
        max_replacements: How many workers that failed are started again.
        max_preemptions: How many workers that were preempted are.
    """

    fewest_workers: int
    max_replacements: int = 0
    max_preemptions: int = 0


@dataclass(frozen=True)
class TaskState:
    """One task.

    Attributes:
        name: The task in words, such as `worker 1`.
        task_type: `chief`, `worker`, `ps` or `evaluator`.
        phase: The phase that it reported last; None before the first report.
        has_waited: Whether it has ever been in the phase `connecting`.
        returncode: Its exit status (negative: the signal that killed it); None while it runs.
        ask_at: When to ask it to end; None for never.
        kill_at: When to kill it; None for never.
        was_asked: Whether it has been asked to end, or killed.
        is_lost: Whether the job goes on without it.
        start_at: When to start it again; None for never.
        num_starts: How often it has been started.
    """

    name: str
    task_type: str
    phase: str | None = None
    has_waited: bool = False
    returncode: int | None = None
    ask_at: float | None = None
    kill_at: float | None = None
    was_asked: bool = False
    is_lost: bool = False
    start_at: float | None = None
    num_starts: int = 1

    @property
    def has_failed(self) -> bool:
        """Whether it ended with a status other than 0 of its own accord."""
        return self.returncode not in (None, 0) and not self.was_asked


@dataclass(frozen=True)
class JobOutcome:
    """Why the job ends.

    Attributes:
        status: The launcher's exit status.
        reason: In words.
        task: The task whose failure is the reason, if one's is.
        was_ended: Whether somebody ended the job by a signal to the launcher.
    """

    status: int
    reason: str
    task: str | None = None
    was_ended: bool = False


@dataclass(frozen=True)
class JobState:
    """The job so far. `step` makes the next state."""

    tasks: tuple[TaskState, ...]
    rules: LifecycleRules
    elasticity: Elasticity | None = None
    num_replaced: int = 0
    num_preempted: int = 0
    first_waited_at: float | None = None
    outcome: JobOutcome | None = None
    was_interrupted: bool = False
    is_finished: bool = False

    @property
    def running(self) -> tuple[TaskState, ...]:
        """The tasks that have not ended."""
        return tuple(task for task in self.tasks if task.returncode is None)

    @property
    def is_coordinated(self) -> bool:
        """Whether a chief coordinates workers and parameter servers."""
        return any(task.task_type == "chief" for task in self.tasks)

    @property
    def has_trained(self) -> bool:
        """Whether training has ended well: on every task that trains, or on the first of an elastic job."""
        ended = [task.returncode == 0 for task in self.training_tasks]
        return all(ended) if self.elasticity is None else any(ended)

    @property
    def training_tasks(self) -> tuple[TaskState, ...]:
        """The tasks whose end is the end of training."""
        training_type = "chief" if self.is_coordinated else "worker"
        return tuple(task for task in self.tasks if task.task_type == training_type)


def step(state: JobState, event: Event) -> tuple[JobState, tuple[Decision, ...]]:
    """Takes one event into account.

    Args:
        state: The job so far.
        event: What happened, and when.

    Returns:
        The job now, and what to do, in this order. No decision means to wait.
    """
    state = _note(state, event)
    losses: tuple[Decision, ...] = ()
    if state.outcome is None:
        state, losses = _lose_workers(state, event.now)
        state = _judge(state, event)
    state, decisions = _enforce_deadlines(state, event.now)
    decisions = (*losses, *decisions)
    if not state.running and not state.is_finished and not any(isinstance(each, Start) for each in decisions):
        outcome = state.outcome or JobOutcome(0, "every task ended with status 0")
        if outcome.was_ended and all(task.returncode == os.EX_TEMPFAIL for task in state.training_tasks):
            outcome = replace(outcome, status=os.EX_TEMPFAIL)
        state = replace(state, outcome=outcome, is_finished=True)
        decisions = (*decisions, Finish(outcome.status, outcome.reason))
    return state, decisions


def _note(state: JobState, event: Event) -> JobState:
    match event:
        case TaskExited(task=name, returncode=returncode):
            return _update(state, name, returncode=returncode)
        case PhaseReported(task=name, phase=phase, has_waited=has_waited, now=now):
            if has_waited and state.first_waited_at is None:
                state = replace(state, first_waited_at=now)
            return _update(state, name, phase=phase, has_waited=has_waited)
        case SignalReceived(number=number, now=now):
            return _note_signal(state, number, now)
        case ClockTicked():
            return state


def _note_signal(state: JobState, number: signal.Signals, now: float) -> JobState:
    was_interrupted = state.was_interrupted
    state = replace(state, was_interrupted=was_interrupted or number == signal.SIGINT)
    if state.outcome is None:
        outcome = JobOutcome(128 + number, f"the launcher received {number.name}", was_ended=True)
        return _ask_all(replace(state, outcome=outcome), now)
    if was_interrupted and number == signal.SIGINT:  # an impatient user
        return _update_running(state, kill_at=now)
    return _ask_all(state, now)


def _judge(state: JobState, event: Event) -> JobState:
    """Looks for a reason to end the job; there is none so far."""
    now = event.now
    for task in state.tasks:
        if task.has_failed and task.returncode is not None and not task.is_lost:
            outcome = JobOutcome(exit_status(task.returncode), describe_exit(task.name, task.returncode), task.name)
            return _ask_all(replace(state, outcome=outcome), now + state.rules.failure_grace_s)
    if state.has_trained:
        return _end_helpers(state, now)
    if state.elasticity is not None and not state.is_coordinated:
        return state  # the rendezvous waits for the workers
    problem = _find_start_problem(state, now)
    if problem is not None:
        return _ask_all(replace(state, outcome=JobOutcome(1, problem)), now)
    return state


def _lose_workers(state: JobState, now: float) -> tuple[JobState, tuple[Decision, ...]]:
    """Goes on without workers that failed, where that is possible."""
    decisions: list[Decision] = []
    for task in state.tasks:
        elasticity, returncode = state.elasticity, task.returncode
        is_candidate = task.task_type == "worker" and task.has_failed and not task.is_lost
        if elasticity is None or returncode is None or not is_candidate:
            continue
        preempted = is_preemption(returncode)
        used, limit, option = (
            (state.num_preempted, elasticity.max_preemptions, "--max-preemptions")
            if preempted
            else (state.num_replaced, elasticity.max_replacements, "--max-restarts")
        )
        if not _may_be_lost(state, elasticity, task, has_budget=used < limit):
            continue
        left = sum(each.task_type == "worker" for each in state.running)
        reason = f"{describe_exit(task.name, returncode)}; the job goes on with {left} worker{'s' if left != 1 else ''}"
        start_at = None
        if state.has_trained:
            reason = f"{describe_exit(task.name, returncode)}; training had ended"
        elif used < limit:
            doubled = state.rules.replacement_delay_s * 2.0 ** (task.num_starts - 1)
            start_at = now + min(state.rules.replacement_max_delay_s, doubled)
            reason += f", and it is started again in {start_at - now:g} s ({used + 1} of at most {limit}, {option})"
            state = replace(
                state, num_preempted=state.num_preempted + preempted, num_replaced=state.num_replaced + (not preempted)
            )
        elif limit:
            reason += f"; it is not started again, as {option}={limit} have been"
        state = _update(state, task.name, is_lost=True, start_at=start_at)
        decisions.append(Lose(task.name, reason))
    return state, tuple(decisions)


def _may_be_lost(state: JobState, elasticity: Elasticity, task: TaskState, *, has_budget: bool) -> bool:
    if state.has_trained:
        return task.num_starts > 1 and not state.is_coordinated  # it came too late to take part
    if state.is_coordinated:  # the coordinator takes a worker back, once it has begun
        return has_budget and any(each.phase in _CONNECTED for each in state.training_tasks)
    num_live = sum(each.task_type == "worker" for each in state.running)
    has_saved = task.returncode == os.EX_TEMPFAIL  # as all have, to be started again
    return num_live >= elasticity.fewest_workers and not has_saved


def _end_helpers(state: JobState, now: float) -> JobState:
    def end(task: TaskState) -> TaskState:
        if task.returncode is not None or task.ask_at is not None:
            return task
        grace_s = state.rules.evaluator_grace_s if task.task_type == "evaluator" else 0.0
        if task.task_type == "worker" and state.elasticity is not None and not state.is_coordinated:
            grace_s = state.rules.end_grace_s
        return replace(task, ask_at=now + grace_s)

    return replace(state, tasks=tuple(end(task) for task in state.tasks))


def _find_start_problem(state: JobState, now: float) -> str | None:
    waiting = [task.name for task in state.running if task.phase == "connecting" and task.task_type != "evaluator"]
    if not waiting or state.first_waited_at is None:
        return None
    absent = [task for task in state.tasks if not task.has_waited and task.task_type != "evaluator"]
    waiters = f"{', '.join(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for it"
    for task in absent:
        if task.returncode == 0:
            return f"{task.name} ended with status 0 before it connected to the cluster, and {waiters}"
    if absent and now - state.first_waited_at >= state.rules.start_timeout_s:
        silent = ", ".join(f"{task.name} (last report: {task.phase or 'none'})" for task in absent)
        return (
            f"not connected within {state.rules.start_timeout_s:g} s (--start-timeout-s) after the first task was "
            f"ready: {silent}; {waiters}"
        )
    return None


def _enforce_deadlines(state: JobState, now: float) -> tuple[JobState, tuple[Decision, ...]]:
    reason = state.outcome.reason if state.outcome else "training has ended"
    may_start = state.outcome is None and not state.has_trained
    to_start = [task for task in state.tasks if may_start and task.start_at is not None and task.start_at <= now]
    to_kill = [task.name for task in state.running if task.kill_at is not None and task.kill_at <= now]
    to_ask = [
        task.name
        for task in state.running
        if task.ask_at is not None and task.ask_at <= now and not task.was_asked and task.name not in to_kill
    ]
    grace_s = state.rules.stop_grace_s if state.outcome and state.outcome.was_ended else state.rules.kill_grace_s
    decisions: list[Decision] = []
    for task in to_start:
        again = TaskState(task.name, task.task_type, num_starts=task.num_starts + 1)
        state = replace(state, tasks=tuple(again if each is task else each for each in state.tasks))
        decisions.append(Start(task.name, f"start {again.num_starts}"))
    for name in to_kill:
        state = _update(state, name, kill_at=None, was_asked=True)
    for name in to_ask:
        state = _update(state, name, was_asked=True, kill_at=now + grace_s)
    if to_ask:
        decisions.append(Ask(tuple(to_ask), reason))
    if to_kill:
        decisions.append(Kill(tuple(to_kill), reason))
    return state, tuple(decisions)


def _ask_all(state: JobState, at: float) -> JobState:
    def ask(task: TaskState) -> TaskState:
        return replace(task, ask_at=at if task.ask_at is None else min(task.ask_at, at))

    return replace(state, tasks=tuple(task if task.returncode is not None else ask(task) for task in state.tasks))


def _update(state: JobState, name: str, **changes: object) -> JobState:
    return replace(
        state,
        tasks=tuple(replace(task, **changes) if task.name == name else task for task in state.tasks),  # type: ignore[arg-type]
    )


def _update_running(state: JobState, *, kill_at: float) -> JobState:
    return replace(
        state,
        tasks=tuple(task if task.returncode is not None else replace(task, kill_at=kill_at) for task in state.tasks),
    )
