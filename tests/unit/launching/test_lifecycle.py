"""The life of a job, as tables: what happened, and what is decided, with no process and no clock."""

import signal

import pytest

from tfdist.launching.decisions import Ask, ClockTicked, Finish, Kill, PhaseReported, SignalReceived, TaskExited
from tfdist.launching.lifecycle import JobState, LifecycleRules, TaskState, step

RULES = LifecycleRules(start_timeout_s=300, evaluator_grace_s=600, failure_grace_s=2, kill_grace_s=10, stop_grace_s=30)
W0, W1, CHIEF, PS, EVALUATOR = "worker 0", "worker 1", "chief", "ps 0", "evaluator"
TWO_WORKERS = (W0, W1)
COORDINATED = (CHIEF, W0, W1, PS)


def live(names, *events):
    """Runs a whole life; returns what was decided, as (time, decision), and the last state."""
    state = JobState(tuple(TaskState(name, name.split()[0]) for name in names), RULES)
    decided = []
    for event in events:
        state, decisions = step(state, event)
        decided += [(event.now, decision) for decision in decisions]
    return decided, state


def exited(name, returncode, now):
    return TaskExited(name, returncode, now)


def waits(name, now):
    return PhaseReported(name, "connecting", True, now)


def connected(name, now):
    return PhaseReported(name, "connected", True, now)


def tick(now):
    return ClockTicked(now)


ALL_WELL = "every task ended with status 0"


def test_workers_that_end_well():
    decided, _ = live(TWO_WORKERS, tick(0), exited(W1, 0, 5), tick(6), exited(W0, 0, 9), tick(10))
    assert decided == [(9, Finish(0, ALL_WELL))]


@pytest.mark.parametrize(
    ("returncode", "status", "reason"),
    [
        (3, 3, "worker 1 ended with status 3"),
        (-9, 137, "worker 1 was killed by SIGKILL (signal 9)"),
        (-11, 139, "worker 1 was killed by SIGSEGV (signal 11)"),
        (-64, 192, "worker 1 was killed by SIGRTMAX (signal 64)"),
        (-50, 178, "worker 1 was killed by an unnamed signal (signal 50)"),
    ],
)
def test_a_failure_ends_the_others_after_a_grace(returncode, status, reason):
    decided, state = live(
        TWO_WORKERS, exited(W1, returncode, 5), tick(6.9), tick(7), tick(16.9), tick(17), exited(W0, -9, 17.1)
    )
    assert decided == [(7, Ask((W0,), reason)), (17, Kill((W0,), reason)), (17.1, Finish(status, reason))]
    assert state.outcome.task == W1


def test_a_second_failure_within_the_grace_changes_nothing():
    reason = "worker 1 ended with status 3"
    decided, state = live(TWO_WORKERS, exited(W1, 3, 5), exited(W0, 1, 6), tick(8))
    assert decided == [(6, Finish(3, reason))]
    assert state.outcome.task == W1
    assert [task.has_failed for task in state.tasks] == [True, True]


def test_a_task_that_was_asked_to_end_has_not_failed():
    _, state = live(TWO_WORKERS, exited(W1, 3, 5), tick(7), exited(W0, -15, 8))
    assert [task.has_failed for task in state.tasks] == [False, True]


def test_helpers_end_with_their_coordinator_and_do_not_count():
    decided, _ = live(
        COORDINATED, exited(CHIEF, 0, 5), exited(W0, -15, 6), exited(W1, 1, 6), tick(14), tick(15), exited(PS, -9, 15.1)
    )
    why = "training has ended"
    assert decided == [(5, Ask((W0, W1, PS), why)), (15, Kill((PS,), why)), (15.1, Finish(0, ALL_WELL))]


def test_a_helper_may_end_early_with_status_0():
    decided, state = live(COORDINATED, exited(W0, 0, 1), exited(PS, 0, 2), tick(3))
    assert decided == []
    assert state.outcome is None


def test_a_helper_that_fails_early_fails_the_job():
    decided, _ = live(COORDINATED, exited(W0, 1, 1), tick(3))
    assert decided == [(3, Ask((CHIEF, W1, PS), "worker 0 ended with status 1"))]


@pytest.mark.parametrize("names", [(W0, W1, EVALUATOR), (CHIEF, W0, W1, EVALUATOR)])
def test_the_evaluator_has_a_grace_after_training(names):
    training = [exited(name, 0, 5) for name in names if name in ((CHIEF,) if CHIEF in names else TWO_WORKERS)]
    helpers = [exited(name, 0, 6) for name in names if CHIEF in names and name in TWO_WORKERS]
    decided, _ = live(names, *training, *helpers, tick(604.9), tick(605), exited(EVALUATOR, -15, 606))
    of_evaluator = [(now, decision) for now, decision in decided if now > 5]
    assert of_evaluator == [(605, Ask((EVALUATOR,), "training has ended")), (606, Finish(0, ALL_WELL))]


def test_an_evaluator_that_fails_after_training_fails_the_job():
    decided, _ = live((W0, EVALUATOR), exited(W0, 0, 5), exited(EVALUATOR, 4, 6))
    assert decided == [(6, Finish(4, "evaluator ended with status 4"))]


def test_an_evaluator_alone_does_not_end_training():
    decided, _ = live((W0, EVALUATOR), exited(EVALUATOR, 0, 5), tick(6))
    assert decided == []


def test_a_task_that_never_connects_is_named_with_what_it_last_reported_and_who_waits():
    started = PhaseReported(W1, "started", False, 1)
    decided, _ = live(TWO_WORKERS, started, waits(W0, 10), tick(309.9), tick(310))
    reason = (
        "not connected within 300 s (--start-timeout-s) after the first task was ready: "
        "worker 1 (last report: started); worker 0 waits for it"
    )
    assert decided == [(310, Ask(TWO_WORKERS, reason))]


def test_the_job_that_never_started_fails_with_status_1():
    decided, state = live(TWO_WORKERS, waits(W0, 0), tick(300), exited(W0, -15, 301), exited(W1, -15, 301))
    assert decided[-1][1].status == 1
    assert state.outcome.task is None


@pytest.mark.parametrize(
    ("names", "events"),
    [
        (TWO_WORKERS, [tick(1000)]),  # nobody reports: a script without tfdist
        (TWO_WORKERS, [PhaseReported(W0, "started", False, 0), tick(1000)]),  # nobody waits
        (TWO_WORKERS, [waits(W0, 0), waits(W1, 299), tick(1000)]),  # all arrived: the rest is the strategy's matter
        (TWO_WORKERS, [waits(W0, 0), connected(W0, 1), tick(1000)]),  # connected to what needs no tfdist
        ((W0, EVALUATOR), [waits(W0, 0), tick(1000)]),  # the evaluator never connects
        (TWO_WORKERS, [waits(W0, 0), waits(W1, 0), connected(W0, 1), connected(W1, 1), waits(W0, 500), tick(1000)]),
    ],
)
def test_what_the_start_timeout_does_not_judge(names, events):
    decided, state = live(names, *events)
    assert decided == []
    assert state.outcome is None


@pytest.mark.parametrize(
    "events", [[waits(W0, 1), exited(W1, 0, 2)], [exited(W1, 0, 1), waits(W0, 2)]], ids=["waits first", "ends first"]
)
def test_a_task_that_ends_before_it_connects_leaves_the_others_waiting(events):
    decided, _ = live(TWO_WORKERS, *events)
    reason = "worker 1 ended with status 0 before it connected to the cluster, and worker 0 waits for it"
    assert decided == [(2, Ask((W0,), reason))]


def test_a_task_that_ends_after_it_connected_leaves_nobody_waiting():
    # Worker 1 was so quick that its last report is the only one seen.
    decided, _ = live(TWO_WORKERS, waits(W0, 1), PhaseReported(W1, "ended", True, 2), exited(W1, 0, 2), tick(1000))
    assert decided == []


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)],
)
def test_a_signal_ends_all_in_order(number, status):
    decided, _ = live(
        TWO_WORKERS, SignalReceived(number, 5), exited(W0, -15, 6), tick(34.9), tick(35), exited(W1, -9, 35.1)
    )
    reason = f"the launcher received {number.name}"
    assert decided == [(5, Ask(TWO_WORKERS, reason)), (35, Kill((W1,), reason)), (35.1, Finish(status, reason))]


@pytest.mark.parametrize(("statuses", "status"), [((75, 75), 75), ((75, 0), 143), ((75, -15), 143), ((75, 1), 143)])
def test_a_signal_after_which_training_was_saved(statuses, status):
    decided, _ = live(
        TWO_WORKERS, SignalReceived(signal.SIGTERM, 5), exited(W0, statuses[0], 6), exited(W1, statuses[1], 7)
    )
    assert decided[-1] == (7, Finish(status, "the launcher received SIGTERM"))


def test_servers_do_not_count_when_training_was_saved():
    ends = [exited(name, 75 if name == CHIEF else -15, 6) for name in COORDINATED]
    decided, _ = live(COORDINATED, SignalReceived(signal.SIGTERM, 5), *ends)
    assert decided[-1] == (6, Finish(75, "the launcher received SIGTERM"))


def test_a_second_ctrl_c_kills_at_once_a_second_sigterm_does_not():
    reason = "the launcher received SIGINT"
    decided, _ = live(TWO_WORKERS, SignalReceived(signal.SIGINT, 5), SignalReceived(signal.SIGINT, 6))
    assert decided == [(5, Ask(TWO_WORKERS, reason)), (6, Kill(TWO_WORKERS, reason))]
    decided, _ = live(TWO_WORKERS, SignalReceived(signal.SIGTERM, 5), SignalReceived(signal.SIGTERM, 6))
    assert len(decided) == 1


def test_a_signal_during_the_failure_grace_is_obeyed_at_once_and_the_failure_stays_the_cause():
    reason = "worker 1 ended with status 3"
    decided, _ = live(TWO_WORKERS, exited(W1, 3, 5), SignalReceived(signal.SIGTERM, 6), exited(W0, -15, 7))
    assert decided == [(6, Ask((W0,), reason)), (7, Finish(3, reason))]


def test_the_first_ctrl_c_after_a_failure_asks_and_the_second_kills():
    decided, _ = live(
        TWO_WORKERS, exited(W1, 3, 5), SignalReceived(signal.SIGINT, 5.5), SignalReceived(signal.SIGINT, 6)
    )
    assert [type(decision) for _, decision in decided] == [Ask, Kill]


def test_tasks_that_exit_after_the_signal_have_not_failed():
    _, state = live(TWO_WORKERS, SignalReceived(signal.SIGINT, 5), exited(W0, 1, 6), exited(W1, -15, 6))
    assert not any(task.has_failed for task in state.tasks)


def test_a_thousand_workers():
    names = tuple(f"worker {index}" for index in range(1000))
    decided, _ = live(names, exited("worker 7", 1, 0), tick(2))
    assert len(decided[0][1].tasks) == 999
