"""Whose fault a hang is, as tables."""

import pytest

from tfdist.cluster.heartbeats import (
    RECORD_BYTES,
    Heartbeat,
    pack_heartbeat,
    parse_heartbeat,
)
from tfdist.launching.hangs import HangRules, Seen, Watch, limit_of, look

FIVE = HangRules(limit_s=5.0)
ZEROS = dict.fromkeys(("outside", "trace", "step", "exchange", "save", "other"), 0.0)


def beat(phase, since, step=7, count=10, **seconds):
    return Heartbeat(count, step, phase, since, {**ZEROS, **seconds})


def seen(phase, since, state="S", processor_s=0.0, **more):
    return Seen(beat(phase, since, **more), state, processor_s)


def diagnose(tasks, now, rules=FIVE, watch=None):
    return look(watch or Watch(), rules, tasks, now)[1]


def test_nobody_is_silent():
    assert diagnose({"worker 0": seen("step", 98), "worker 1": seen("exchange", 98)}, 100) is None


def test_the_one_outside_of_the_exchange_is_the_culprit():
    hang = diagnose(
        {"worker 0": seen("exchange", 90), "worker 1": seen("step", 90), "worker 2": seen("exchange", 90)}, 100
    )
    assert hang.culprits == ("worker 1",)
    assert hang.victims == ("worker 0", "worker 2")
    assert hang.reason == (
        "worker 1 hangs at step 7 in the phase step for 10 s: it waits, most likely for its input pipeline; "
        "worker 0, worker 2 wait for it in an exchange"
    )


def test_one_that_uses_its_core_computes():
    watch, _ = look(Watch(), FIVE, {"worker 1": seen("step", 90, "R", 3.0)}, 91)
    hang = diagnose({"worker 1": seen("step", 90, "R", 12.0)}, 100, watch=watch)
    assert "it computes without an end" in hang.reason


@pytest.mark.parametrize("phase", ["exchange", "step", "other"])
def test_a_stopped_process_is_the_culprit_wherever_it_is(phase):
    hang = diagnose({"worker 0": seen("exchange", 90), "worker 1": seen(phase, 91, "T")}, 100)
    assert hang.culprits == ("worker 1",)
    assert "its process is stopped (state T)" in hang.reason


def test_one_that_is_slow_and_not_too_slow_is_waited_for():
    rules = HangRules(floor_s=60)
    watch = Watch(longest={"step": 20.0})
    tasks = {"worker 0": seen("exchange", 0), "worker 1": seen("step", 10)}
    assert diagnose(tasks, 190, rules, watch) is None
    assert diagnose(tasks, 211, rules, watch).culprits == ("worker 1",)


def test_all_wait_in_an_exchange():
    hang = diagnose({"worker 0": seen("exchange", 90), "worker 1": seen("exchange", 90)}, 100)
    assert hang.culprits == ("worker 0", "worker 1")
    elsewhere = HangRules(limit_s=5.0, sees_all_tasks=False)
    assert diagnose({"worker 0": seen("exchange", 90)}, 1000, elsewhere) is None
    assert hang.reason.startswith("every worker waits in an exchange for 10 s (worker 0 at step 7, worker 1 at step 7)")


def test_a_first_step_what_is_outside_and_no_limit_are_no_hang():
    assert diagnose({"worker 0": seen("outside", 0)}, 10_000) is None
    assert diagnose({"worker 0": seen("trace", 0)}, 49) is None
    assert diagnose({"worker 0": seen("trace", 0)}, 51).culprits == ("worker 0",)
    assert diagnose({"worker 0": seen("step", 0)}, 10_000, HangRules(limit_s=0)) is None
    assert diagnose({"worker 0": Seen(None, "S", 0.0)}, 10_000) is None


def test_limits_are_learned_from_the_jobs_own_phases():
    rules = HangRules()
    assert limit_of("step", rules, {}) == 60
    assert limit_of("step", rules, {"step": 30.0}) == 300
    assert limit_of("exchange", rules, {"step": 30.0}) == 300
    assert limit_of("other", rules, {"step": 30.0}) == 600
    watch, _ = look(Watch(), rules, {"worker 0": seen("step", 10, count=1)}, 11)
    watch, _ = look(
        watch,
        rules,
        {
            "worker 0": seen("other", 50, count=2, step=40.0)
            if False
            else Seen(Heartbeat(2, 7, "other", 50, {**ZEROS, "step": 40.0}), "S", 0.0)
        },
        51,
    )
    assert watch.longest["step"] == 40.0


def test_many_beats_between_two_looks_share_their_time():
    watch, _ = look(Watch(), HangRules(), {"w": Seen(Heartbeat(1, 0, "step", 0, ZEROS), "S", 0.0)}, 0)
    later = Heartbeat(101, 25, "step", 10, {**ZEROS, "step": 5.0, "other": 5.0})
    watch, _ = look(watch, HangRules(), {"w": Seen(later, "S", 0.0)}, 10)
    assert watch.longest["step"] == pytest.approx(0.1)


def test_records_survive_the_file_and_half_of_one_is_none():
    record, other = bytearray(RECORD_BYTES), bytearray(RECORD_BYTES)
    pack_heartbeat(record, 10, 2**40, 3, 12.5, seconds=[0.0, 0.0, 0.0, 3.25, 0.0, 0.0])
    assert parse_heartbeat(record) == beat("exchange", 12.5, step=2**40, exchange=3.25)
    pack_heartbeat(other, 11, 1, 2, 1.0, seconds=[0.0] * 6)
    half = other[:40] + record[40:]
    assert parse_heartbeat(half) is None
    assert parse_heartbeat(bytes(RECORD_BYTES)) is None
    assert parse_heartbeat(record[:-1]) is None
