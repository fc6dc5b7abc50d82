"""The life of an elastic job, as tables."""

import os
import random
import signal

import pytest

from tfdist.launching.decisions import Ask, ClockTicked, Finish, Lose, PhaseReported, SignalReceived, Start, TaskExited
from tfdist.launching.lifecycle import Elasticity, JobState, LifecycleRules, TaskState, step

RULES = LifecycleRules(failure_grace_s=2, kill_grace_s=10, stop_grace_s=30, end_grace_s=60, replacement_delay_s=1)
KILLED = -int(signal.SIGKILL)


def live(elasticity, *events, workers=3):
    names = [f"worker {index}" for index in range(workers)]
    state = JobState(tuple(TaskState(name, "worker") for name in names), RULES, elasticity)
    decided = []
    for event in events:
        state, decisions = step(state, event)
        decided += [(event.now, decision) for decision in decisions]
    return decided, state


def exited(index, returncode, now):
    return TaskExited(f"worker {index}", returncode, now)


def tick(now):
    return ClockTicked(now)


def test_a_lost_worker_is_no_failure_while_enough_live():
    decided, state = live(Elasticity(2), exited(1, KILLED, 5), tick(6), tick(100))
    ((now, lost),) = decided
    assert now == 5
    assert isinstance(lost, Lose)
    assert lost.reason == "worker 1 was killed by SIGKILL (signal 9); the job goes on with 2 workers"
    assert state.outcome is None


def test_too_few_left_ends_the_job_with_the_last_failure():
    decided, state = live(Elasticity(2), exited(1, KILLED, 5), exited(0, 3, 6), tick(8), exited(2, -15, 9))
    assert [type(decision) for _, decision in decided] == [Lose, Ask, Finish]
    assert state.outcome.status == 3
    assert state.outcome.task == "worker 0"


def test_a_lost_worker_is_started_again_while_the_budget_lasts():
    decided, state = live(
        Elasticity(1, max_replacements=2),
        *(exited(1, KILLED, 5), tick(5.9), tick(6), exited(1, KILLED, 10), tick(11.9), tick(12), exited(1, 1, 20)),
    )
    assert [(now, type(decision)) for now, decision in decided] == [
        (5, Lose),
        (6, Start),
        (10, Lose),
        (12, Start),
        (20, Lose),
    ]
    reasons = [decision.reason for _, decision in decided if isinstance(decision, Lose)]
    assert reasons[0].endswith("and it is started again in 1 s (1 of at most 2, --max-restarts)")
    assert reasons[1].endswith("and it is started again in 2 s (2 of at most 2, --max-restarts)")
    assert reasons[2].endswith("it is not started again, as --max-restarts=2 have been")
    assert state.outcome is None


def test_preemptions_have_a_budget_of_their_own():
    decided, _ = live(Elasticity(1, 0, 1), exited(1, -15, 5), tick(6), exited(2, KILLED, 7), tick(10))
    assert [type(decision) for _, decision in decided] == [Lose, Start, Lose]


def test_all_saved_and_want_to_be_started_again():
    saved = os.EX_TEMPFAIL
    _, state = live(Elasticity(1, 5, 5), exited(0, saved, 5), exited(1, saved, 5), exited(2, saved, 5))
    assert state.is_finished
    assert state.outcome.status == saved


def test_the_job_ends_well_with_the_first_and_waits_for_the_others():
    decided, state = live(Elasticity(1), exited(0, 0, 5), tick(6), exited(1, 0, 20), exited(2, 0, 30))
    assert [type(decision) for _, decision in decided] == [Finish]
    assert state.outcome.status == 0


def test_one_that_does_not_end_after_training_is_asked_to():
    decided, state = live(Elasticity(1), exited(0, 0, 5), exited(1, 0, 6), tick(64.9), tick(65), exited(2, -15, 66))
    assert [(now, type(decision)) for now, decision in decided] == [(65, Ask), (66, Finish)]
    assert state.outcome.status == 0


def test_a_failure_after_training_is_one():
    _, state = live(Elasticity(1), exited(0, 0, 5), exited(1, 1, 6), tick(9), exited(2, -15, 10))
    assert state.outcome.status == 1


def test_a_newcomer_that_came_too_late_is_no_failure():
    decided, state = live(
        Elasticity(1, 1), exited(1, KILLED, 1), tick(2), exited(0, 0, 5), exited(2, 0, 5), exited(1, 1, 6)
    )
    assert [type(decision) for _, decision in decided] == [Lose, Start, Lose, Finish]
    assert state.outcome.status == 0


def test_none_is_started_again_after_training_or_a_signal():
    decided, _ = live(Elasticity(1, 1), exited(1, KILLED, 1), exited(0, 0, 1.5), tick(3))
    assert [type(decision) for _, decision in decided] == [Lose]
    decided, state = live(
        Elasticity(1, 1),
        *(exited(1, KILLED, 1), SignalReceived(signal.SIGTERM, 1.5), exited(0, -15, 2), exited(2, -15, 2), tick(3)),
    )
    assert [type(decision) for _, decision in decided] == [Lose, Ask, Finish]
    assert state.is_finished


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_workers_fail_at_random(seed):
    """The budget is kept, no worker runs twice at once, every loss and every end has a reason, the job ends."""
    draw = random.Random(seed)
    workers, fewest, budget = 1000, draw.choice([1, 500, 990]), draw.choice([0, 50, 100_000])
    names = [f"worker {index}" for index in range(workers)]
    elasticity = Elasticity(fewest, budget, budget)
    state = JobState(tuple(TaskState(name, "worker") for name in names), RULES, elasticity)
    running, asked, starts, losses, now = set(names), set(), 0, 0, 0.0
    ends_at = draw.uniform(50, 500)
    while not state.is_finished:
        now += draw.expovariate(5.0)
        assert now < 2000, "the job does not end"
        event = ClockTicked(now)
        if running and draw.random() < 0.3:
            name = draw.choice(sorted(asked & running) or sorted(running))
            returncode = 0 if now > ends_at else draw.choice([KILLED, 1, -15])
            running.discard(name)
            event = TaskExited(name, returncode, now)
        state, decisions = step(state, event)
        for decision in decisions:
            match decision:
                case Start(task=name):
                    assert name not in running
                    running.add(name)
                    starts += 1
                case Lose(reason=reason):
                    assert reason
                    losses += 1
                case Ask(tasks=tasks, reason=reason):
                    assert reason
                    asked |= set(tasks)
                case Finish(reason=reason):
                    assert reason
        assert starts <= 2 * budget
        live_ones = {task.name for task in state.running}
        assert live_ones == running
        assert state.outcome is not None or state.has_trained or len(running) >= fewest - 1
    assert not running
    assert losses >= starts


def coordinated(*events, elasticity=Elasticity(0, 1)):  # noqa: B008 - frozen
    names = {"chief": "chief", "worker 0": "worker", "worker 1": "worker", "ps 0": "ps"}
    state = JobState(tuple(TaskState(name, kind) for name, kind in names.items()), RULES, elasticity)
    decided = []
    for event in events:
        state, decisions = step(state, event)
        decided += decisions
    return decided, state


CONNECTED = PhaseReported("chief", "connected", True, 1)


def test_a_worker_under_parameter_servers_is_started_again():
    decided, state = coordinated(
        CONNECTED, exited(1, KILLED, 5), tick(6), TaskExited("chief", 0, 20), TaskExited("ps 0", -15, 21)
    )
    assert [type(decision) for decision in decided] == [Lose, Start, Ask]
    assert decided[2].tasks == ("worker 0", "worker 1", "ps 0")
    assert state.outcome is None


@pytest.mark.parametrize(
    "events",
    [
        (exited(1, KILLED, 5),),  # the coordinator has not come to its cluster
        (CONNECTED, TaskExited("ps 0", KILLED, 5)),
        (CONNECTED, TaskExited("chief", KILLED, 5)),
        (CONNECTED, exited(1, KILLED, 3), tick(4), exited(1, KILLED, 5)),  # no budget is left
    ],
)
def test_what_else_is_lost_under_parameter_servers_ends_the_attempt(events):
    _, state = coordinated(*events)
    assert state.outcome.status == 137
