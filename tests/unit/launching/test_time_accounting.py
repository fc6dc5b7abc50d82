"""Where the time went, as tables."""

import pytest

from tfdist.cluster.job_events import JobEvent, event_to_line, parse_event
from tfdist.launching.time_accounting import PARTS, account


def times(task, at, life, made=0, **phases):
    return JobEvent("task_times", at, {"task": task, "step": made, "seconds": life, "phases": phases})


def started(at, attempt=0):
    return JobEvent("started", at, {"attempt": attempt, "tasks": ["worker 0", "worker 1"]})


def ended(at, attempt=0, status=0, step=None, reason="r"):
    return JobEvent("ended", at, {"attempt": attempt, "status": status, "reason": reason, "step": step})


def test_the_parts_sum_to_the_wall_clock():
    report = account(
        [
            started(100),
            times("worker 0", 119, 19, 50, outside=4.0, trace=1.0, step=8.0, exchange=3.0, save=1.0, other=1.0),
            times("worker 1", 119, 19, 50, outside=4.0, trace=1.0, step=4.0, exchange=7.0, save=1.0, other=1.0),
            ended(120),
        ]
    )
    assert report.wall_s == 20
    assert list(report.parts) == list(PARTS)
    assert sum(report.parts.values()) == pytest.approx(20)
    assert report.parts["training"] == 6
    assert report.parts["exchange"] == 5
    assert report.parts["start-up"] == 5  # 4 outside of fit, 1 before the first beat
    assert report.parts["idle"] == pytest.approx(1)
    assert report.status == 0
    assert report.recoveries == []


def test_a_restart_repeats_work():
    report = account(
        [
            started(0),
            times("worker 0", 10, 10, 20, step=10.0),
            ended(10, status=137, step=20, reason="worker 1 was killed"),
            started(12, 1),
            JobEvent("resumed", 15, {"task": "worker 0", "step": 16}),
            times("worker 0", 30, 18, 40, outside=3.0, step=15.0),
            ended(30, 1),
        ]
    )
    assert report.num_attempts == 2
    assert report.parts["restart"] == 2
    assert report.parts["repeated work"] == pytest.approx(4 * 0.5)
    assert report.parts["training"] == pytest.approx(23)
    assert sum(report.parts.values()) == pytest.approx(30)
    ((tier, cause, seconds),) = [(each.tier, each.cause, each.seconds) for each in report.recoveries]
    assert (tier, cause, seconds) == (2, "worker 1 was killed", 5)


def test_survivors_that_go_on_and_hangs():
    report = account(
        [
            started(0),
            JobEvent("hang", 20, {"tasks": ["worker 1"], "reason": "worker 1 hangs", "seconds": 6.0}),
            times("worker 1", 20.5, 20, 5, step=20.0),
            JobEvent("lost", 20.5, {"task": "worker 1", "step": 5, "reason": "worker 1 hangs"}),
            JobEvent("re-formed", 20.75, {"members": ["worker 0"], "tier": 1}),
            times("worker 0", 40, 40, 50, step=30.0, exchange=10.0),
            ended(40),
        ]
    )
    assert report.parts["detection"] == 6
    assert sum(report.parts.values()) == pytest.approx(40)
    ((tier, seconds),) = [(each.tier, each.seconds) for each in report.recoveries]
    assert (tier, seconds) == (1, 0.25)


def test_the_last_job_of_the_log_counts_and_half_a_log_is_one_that_runs():
    report = account([started(0), ended(10), started(100), times("worker 0", 105, 5, step=5.0)])
    assert report.wall_s == 5
    assert report.status is None
    assert account([ended(1)]) is None
    assert account([]) is None


def test_lines():
    event = JobEvent("lost", 12.5, {"task": "worker 1", "step": 3})
    assert parse_event(event_to_line(event)) == event
    for line in (
        "",
        "{",
        "[]",
        "1",
        '{"event": "lost"}',
        '{"event": "other", "unix_time": 1}',
        '{"event": "lost", "unix',
    ):
        assert parse_event(line) is None
