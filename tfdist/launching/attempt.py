"""One attempt of a job: performs what the state machine of `lifecycle` decides. One thread, all input and output."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfdist.cluster.heartbeats import heartbeat_file_name
from tfdist.cluster.job_environment import (
    JOB_SECRET,
    ElasticEnvironment,
    JobEnvironment,
)
from tfdist.cluster.job_events import JobEvent
from tfdist.cluster.job_reports import (
    failure_file_name,
    parse_failure_report,
    parse_progress_report,
    progress_file_name,
)
from tfdist.launching.console import Console
from tfdist.launching.decisions import (
    Ask,
    ClockTicked,
    Event,
    Finish,
    Kill,
    Lose,
    PhaseReported,
    SignalReceived,
    Start,
    TaskExited,
    describe_exit,
)
from tfdist.launching.event_log import EventLog
from tfdist.launching.guard import JobGuard
from tfdist.launching.hangs import Watch, look
from tfdist.launching.job_options import JobOptions
from tfdist.launching.lifecycle import Elasticity, JobState, TaskState, step
from tfdist.launching.observation import ask_for_stacks, observe, read_heartbeat
from tfdist.launching.plan import (
    TaskPlan,
    build_task_env,
    threads_per_task,
)
from tfdist.launching.process import TaskProcess
from tfdist.launching.rendezvous_process import RendezvousProcess
from tfdist.launching.restarts import AttemptEnd, is_preemption
from tfdist.launching.stacks import find_place, shorten_stacks
from tfdist.launching.summary import TaskEnd, cause_of, find_root_cause, summarize_failure
from tfdist.launching.task_output import TaskOutput

_TICK_S = 0.05
_DRAIN_LIMIT_S = 2.0
_LOOK_EVERY_S = 1.0
_LOOK_AGAIN_AFTER_S = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Attempt:
    """One attempt of a job.

    Attributes:
        console: Where it writes.
        events: Its event log.
        status: The launcher's exit status, once it has ended.
        message: The last words, once it has ended; empty for none.
        end: How it ended; None where it ended well.
    """

    def __init__(
        self,
        options: JobOptions,
        plans: tuple[TaskPlan, ...],
        guard: JobGuard,
        selector: selectors.BaseSelector,
        signals: deque[signal.Signals],
        *,
        number: int,
        earlier: Sequence[JobEvent] = (),
    ):
        self._options, self._plans, self._number = options, plans, number
        self._guard, self._selector, self._signals = guard, selector, signals
        self.console = Console([plan.name for plan in plans])
        self.events = EventLog(options.log_dir, self.console, guard.directory, earlier)
        elasticity, policy = None, options.restarts
        if options.fewest_workers is not None or options.parameter_servers:
            elasticity = Elasticity(options.fewest_workers or 0, policy.max_restarts, policy.max_preemptions)
        tasks = tuple(TaskState(plan.name, plan.task_type) for plan in plans)
        self._state = JobState(tasks, options.rules, elasticity)
        self._rendezvous: RendezvousProcess | None = None
        self._task_envs: dict[str, dict[str, str]] = {}
        self._old_outputs: list[TaskOutput] = []
        self._watch, self._next_look, self._no_hang_before = Watch(), 0.0, 0.0
        self._hangs: dict[str, str] = {}
        self._start_times: dict[str, float] = {}
        self._processes: dict[str, TaskProcess] = {}
        self._outputs: dict[str, TaskOutput] = {}
        self._progress_texts: dict[str, str] = {}
        self._end_times: dict[str, float] = {}
        self.status, self.message = 0, ""
        self.end: AttemptEnd | None = None

    def start(self, env: Mapping[str, str]) -> None:
        """Starts all tasks."""
        options = self._options
        self.events.write("started", attempt=self._number, tasks=[plan.name for plan in self._plans])
        num_cores = len(os.sched_getaffinity(0))
        num_threads = options.num_threads or threads_per_task(num_cores, options.workers, len(self._plans))
        elastic, secret = None, self._guard.secret
        if options.fewest_workers is not None:
            members, meeting = options.membership_rules(env), options.meeting
            if meeting is None:
                self._rendezvous = RendezvousProcess(members, self._guard, env)
                elastic = ElasticEnvironment(self._rendezvous.address, members.fewest, members.most)
            else:
                elastic = ElasticEnvironment(meeting.address, members.fewest, members.most, meeting.job)
                secret = env[JOB_SECRET]
        for plan in self._plans:
            job = JobEnvironment(self._guard.job_id, str(self._guard.directory), plan.name, secret, self._number)
            self._task_envs[plan.name] = build_task_env(plan, job, env, num_threads, elastic)
            self._start_task(plan.name, goes_on=self._number > 0)

    def _start_task(self, name: str, *, goes_on: bool) -> None:
        process = TaskProcess(self._options.command, self._task_envs[name], subprocess.PIPE, subprocess.PIPE)
        self._guard.add(process)
        self._start_times[name] = time.time()
        self._processes[name] = process
        self._outputs[name] = TaskOutput(
            name, process, self.console, self._options.log_dir, self._selector, goes_on=goes_on
        )

    def _start_again(self, name: str) -> None:
        """Starts a task that was lost. What it said before is passed on to its end."""
        self._old_outputs.append(self._outputs[name])
        for file_name in (progress_file_name(name), failure_file_name(name), heartbeat_file_name(name)):
            (self._guard.directory / file_name).unlink(missing_ok=True)
        self._progress_texts.pop(name, None)
        self._hangs.pop(name, None)
        self._start_task(name, goes_on=True)

    def attend(self) -> None:
        """Attends to the tasks until all have ended."""
        while not self._state.is_finished:
            self._pass_on_output(_TICK_S)
            while self._signals:
                self._handle(SignalReceived(self._signals.popleft(), time.monotonic()))
            exits = self._find_exits()
            events: list[Event] = [*self._read_progress(), *exits]  # a task's last report counts before its end
            for event in events:
                self._handle(event)
            self._handle(ClockTicked(time.monotonic()))
            self._tell_rounds()
            if (now := time.monotonic()) >= self._next_look:
                self._next_look = now + _LOOK_EVERY_S
                self.events.take_from_tasks(self._guard.directory, self._outputs)
                self._look_for_hangs(now)
        self._guard.kill_all()
        drain_until = time.monotonic() + _DRAIN_LIMIT_S
        while self._selector.get_map() and time.monotonic() < drain_until:
            self._pass_on_output(_TICK_S)
        for output in (*self._old_outputs, *self._outputs.values()):
            output.close()
        if self._rendezvous is not None:
            self._rendezvous.close()
        self._conclude()
        self.events.take_from_tasks(self._guard.directory, self._outputs)
        step = None if self.end is None else self.end.step
        reason = self._state.outcome.reason if self._state.outcome else ""
        self.events.write("ended", attempt=self._number, status=self.status, reason=reason, step=step)

    def _handle(self, event: Event) -> None:
        self._state, decisions = step(self._state, event)
        for decision in decisions:
            match decision:
                case Ask(tasks=tasks, reason=reason):
                    self._note_ending(f"{reason}: asking {', '.join(tasks)} to end")
                    for name in tasks:
                        self._processes[name].send(signal.SIGTERM)
                case Kill(tasks=tasks, reason=reason):
                    self._note_ending(f"{reason}: killing {', '.join(tasks)}")
                    for name in tasks:
                        self._processes[name].send(signal.SIGKILL)
                case Lose(reason=reason):
                    self.console.write_note(reason)
                case Start(task=name):
                    self.console.write_note(f"starting {name} again")
                    self.events.write("restarted", task=name, tier=2)
                    self._start_again(name)
                case Finish():
                    pass  # the loop sees it in the state

    def _tell_rounds(self) -> None:
        for number, members in self._rendezvous.rounds() if self._rendezvous else ():
            self.console.write_note(f"group {number} of the job: {', '.join(members)}")
            if number:
                self.events.write("re-formed", members=list(members), tier=1)

    def _look_for_hangs(self, now: float) -> None:
        """Kills a task that hangs. What follows is what follows when a task is lost."""
        if now < self._no_hang_before or self._state.outcome is not None or self._state.has_trained:
            return
        watched = [task.name for task in self._state.running if task.task_type != "evaluator"]
        pids = {name: self._processes[name].pid for name in watched if name not in self._hangs}
        seen = {name: observe(self._guard.directory, name, pid) for name, pid in pids.items()}
        self._watch, hang = look(self._watch, self._options.hangs, seen, now)
        if hang is None:
            return
        asked = {name: pids[name] for name in (*hang.culprits, *hang.victims)}
        stacks = ask_for_stacks(self._guard.directory, asked)
        reason = hang.describe({name: find_place(text) for name, text in stacks.items()})
        self.console.write_note(f"the job hangs: {reason}")
        seconds = round(hang.silence_s, 3)
        self.events.write("hang", tasks=list(hang.culprits), reason=reason, seconds=seconds)
        for name, text in stacks.items():
            stopped = " (a stopped process gives none)" if seen[name].state in "Tt" else ""
            shown = "".join(f"\n    {line}" for line in shorten_stacks(text)) or f" none came{stopped}"
            self.console.write_note(f"stacks of {name}:{shown}")
        self._no_hang_before = time.monotonic() + _LOOK_AGAIN_AFTER_S  # the victims have to notice that it is gone
        for name in hang.culprits:
            self._hangs[name] = reason
            self.console.write_note(f"killing {name}")
            self._processes[name].send(signal.SIGKILL)

    def _note_ending(self, text: str) -> None:
        if self._state.outcome is not None:  # that helpers are asked to end after training is no news
            self.console.write_note(text)

    def _pass_on_output(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            output, descriptor = key.data
            output.read(descriptor)

    def _read_progress(self) -> list[PhaseReported]:
        events = []
        for plan in self._plans:
            text = _read_text(self._guard.directory / progress_file_name(plan.name))
            if text and text != self._progress_texts.get(plan.name):
                self._progress_texts[plan.name] = text
                report = parse_progress_report(text)
                if report is not None:
                    events.append(PhaseReported(plan.name, report.phase, report.has_waited, time.monotonic()))
        return events

    def _find_exits(self) -> list[TaskExited]:
        events = []
        for task in self._state.running:
            returncode = self._processes[task.name].poll()
            if returncode is not None:
                self._guard.remove(self._processes[task.name])
                self._end_times[task.name] = time.time()
                self._note_end(task, returncode)
                events.append(TaskExited(task.name, returncode, time.monotonic()))
        return events

    def _note_end(self, task: TaskState, returncode: int) -> None:
        beat = read_heartbeat(self._guard.directory, task.name)
        self.events.take_from_tasks(self._guard.directory, [task.name])
        life_s = round(time.time() - self._start_times[task.name], 3)
        if beat is not None:
            seconds = {phase: round(value, 3) for phase, value in beat.seconds.items()}
            seconds[beat.phase] = round(seconds[beat.phase] + time.monotonic() - beat.since, 3)
            self.events.write("task_times", task=task.name, step=beat.step, seconds=life_s, phases=seconds)
        if returncode != 0 and not task.was_asked:
            step = None if beat is None else beat.step
            reason = self._hangs.get(task.name) or describe_exit(task.name, returncode)
            self.events.write("lost", task=task.name, step=step, reason=reason)

    def _conclude(self) -> None:
        outcome = self._state.outcome
        assert outcome is not None
        self.status = outcome.status
        if outcome.status == 0:
            return
        if outcome.task is None:
            self.message = f"the job ended: {outcome.reason}"
            self.end = AttemptEnd(outcome.reason, "start", may_restart=not outcome.was_ended)
            return
        ends = [self._describe_end(task) for task in self._state.tasks]
        root = find_root_cause(ends)
        assert root is not None
        self.status, self.message = summarize_failure(root, ends)
        beats = [read_heartbeat(self._guard.directory, task.name) for task in self._state.training_tasks]
        steps = [beat.step for beat in beats if beat is not None]
        self.end = AttemptEnd(
            self._hangs.get(root.name) or describe_exit(root.name, root.returncode),
            place="hang" if root.name in self._hangs else cause_of(root),
            step=max(steps) if steps else None,
            is_preempted=is_preemption(root.returncode),
        )

    def _describe_end(self, task: TaskState) -> TaskEnd:
        assert task.returncode is not None
        return TaskEnd(
            name=task.name,
            returncode=task.returncode,
            was_asked=task.was_asked,
            unix_time=self._end_times[task.name],
            report=parse_failure_report(_read_text(self._guard.directory / failure_file_name(task.name))),
            last_lines=self._outputs[task.name].last_lines,
        )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
