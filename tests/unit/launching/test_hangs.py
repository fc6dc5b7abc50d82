"""Whose fault a hang is, as tables."""

import pytest

from tfdist.cluster.heartbeats import PHASES, RECORD_BYTES, Heartbeat, pack_heartbeat, parse_heartbeat
from tfdist.launching.hangs import HangRules, Seen, Watch, limit_of, look

FIVE = HangRules(limit_s=5.0)
ZEROS = dict.fromkeys(PHASES, 0.0)


def beat(phase, since, step=7, count=10, **seconds):
    return Heartbeat(count, step, phase, since, {**ZEROS, **seconds})


def seen(phase, since, state="S", processor_s=0.0, **more):
    return Seen(beat(phase, since, **more), state, processor_s)


def diagnose(tasks, now, rules=FIVE, watch=None):
    return look(watch or Watch(), rules, tasks, now)[1]


def watch_for(tasks, begin, end, rules=FIVE, watch=None):
    """Looks once a second, as the launcher does."""
    watch = watch or Watch()
    for now in range(begin, end):
        watch, _ = look(watch, rules, tasks, now)
    return watch


def test_nobody_is_silent():
    assert diagnose({"worker 0": seen("step", 98), "worker 1": seen("exchange", 98)}, 100) is None


def test_the_one_outside_of_the_exchange_is_the_culprit():
    hang = diagnose(
        {"worker 0": seen("exchange", 90), "worker 1": seen("step", 90), "worker 2": seen("exchange", 90)}, 100
    )
    assert hang.culprits == ("worker 1",)
    assert hang.victims == ("worker 0", "worker 2")
    assert hang.describe() == (
        "worker 1 hangs at step 7 in the phase step for 10 s: it waits, most likely for its input pipeline; "
        "worker 0, worker 2 wait for it in an exchange"
    )


def test_one_that_uses_its_core_computes():
    watch = watch_for({"worker 1": seen("step", 90, "R", 3.0)}, 91, 100)
    hang = diagnose({"worker 1": seen("step", 90, "R", 12.0)}, 100, watch=watch)
    assert "it computes without an end" in hang.describe()
    assert "it computes without an end in its input pipeline" in hang.describe({"worker 1": "its input pipeline"})


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("input", "in the phase input for 10 s: it waits in rows (data.py:3)"),
        ("step", "in the phase step for 10 s: it waits in rows (data.py:3)"),
        ("other", "in the phase other for 10 s: it waits between two steps, as in a callback"),
        ("save", "in the phase save for 10 s: it waits"),
    ],
)
def test_what_stacks_tell_of_a_step_is_said(phase, said):
    hang = diagnose({"worker 1": seen(phase, 90)}, 100)
    assert hang.describe({"worker 1": "rows (data.py:3)"}) == f"worker 1 hangs at step 7 {said}"


@pytest.mark.parametrize("phase", ["exchange", "step", "other"])
def test_a_stopped_process_is_the_culprit_wherever_it_is(phase):
    hang = diagnose({"worker 0": seen("exchange", 90), "worker 1": seen(phase, 91, "T")}, 100)
    assert hang.culprits == ("worker 1",)
    assert "its process is stopped (state T)" in hang.describe()


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
    assert hang.describe().startswith(
        "every worker waits in an exchange for 10 s (worker 0 at step 7, worker 1 at step 7)"
    )


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
    watch = watch_for({"worker 0": seen("step", 10, count=1)}, 11, 51, rules)
    watch, _ = look(
        watch,
        rules,
        {"worker 0": Seen(Heartbeat(2, 7, "other", 50, {**ZEROS, "step": 40.0}), "S", 0.0)},
        51,
    )
    assert watch.longest["step"] == 40.0


def test_many_beats_between_two_looks_share_their_time():
    watch, _ = look(Watch(), HangRules(), {"w": Seen(Heartbeat(1, 0, "step", 0, ZEROS), "S", 0.0)}, 0)
    later = Heartbeat(101, 25, "step", 4, {**ZEROS, "step": 2.0, "other": 2.0})
    watch, _ = look(watch, HangRules(), {"w": Seen(later, "S", 0.0)}, 4)
    assert watch.longest["step"] == pytest.approx(0.04)


def test_a_long_interval_is_not_lost_among_short_ones():
    """40 s in the input, then a hundred quick steps within the second until the next look."""
    watch = watch_for({"w": seen("input", 0)}, 0, 40, HangRules())
    later = Heartbeat(410, 107, "step", 39.9, {**ZEROS, "input": 39.6, "step": 0.3})
    watch, _ = look(watch, HangRules(), {"w": Seen(later, "S", 0.0)}, 40)
    assert watch.longest["input"] == 39
    assert limit_of("input", HangRules(), watch.longest) == 390


def test_a_step_whose_graph_waits_for_its_batch_may_wait_as_long_again():
    """The task tells afterwards that 39 of the 40 s of its step were input."""
    watch = watch_for({"w": seen("step", 0)}, 0, 40, HangRules())
    later = Heartbeat(11, 8, "exchange", 40, {**ZEROS, "step": 1.0, "input": 39.0})
    watch, _ = look(watch, HangRules(), {"w": Seen(later, "S", 0.0)}, 40)
    assert watch.longest["step"] == 40


def test_nobody_was_silent_while_the_machine_was_paused():
    tasks = {"worker 0": seen("exchange", 9.9), "worker 1": seen("step", 9.9)}
    watch = watch_for(tasks, 10, 11)
    watch, hang = look(watch, FIVE, tasks, 3610)
    assert hang is None
    for now in range(3611, 3615):
        watch, hang = look(watch, FIVE, tasks, now)
        assert hang is None
    watch, hang = look(watch, FIVE, tasks, 3615)
    assert hang.culprits == ("worker 1",)


def test_a_pause_is_not_learned():
    watch, _ = look(Watch(), HangRules(), {"w": seen("step", 9.9, count=1)}, 10)
    later = Heartbeat(2, 7, "other", 3610, {**ZEROS, "step": 3600.1})
    watch, _ = look(watch, HangRules(), {"w": Seen(later, "S", 0.0)}, 3610)
    assert watch.longest.get("step", 0.0) == 0.0


def test_what_victims_waited_for_a_culprit_is_not_learned():
    tasks = {"worker 0": seen("exchange", 90), "worker 1": seen("step", 90)}
    watch, hang = look(Watch(), FIVE, tasks, 100)
    assert hang.victims == ("worker 0",)
    later = Heartbeat(12, 7, "step", 100.5, {**ZEROS, "exchange": 10.5})
    watch, _ = look(watch, FIVE, {"worker 0": Seen(later, "S", 0.0)}, 101)
    assert watch.longest.get("exchange", 0.0) == 0.0


def test_records_survive_the_file_and_half_of_one_is_none():
    record, other = bytearray(RECORD_BYTES), bytearray(RECORD_BYTES)
    seconds = [3.25 if phase == "exchange" else 0.0 for phase in PHASES]
    pack_heartbeat(record, 10, 2**40, PHASES.index("exchange"), 12.5, seconds=seconds)
    assert parse_heartbeat(record) == beat("exchange", 12.5, step=2**40, exchange=3.25)
    pack_heartbeat(other, 11, 1, 2, 1.0, seconds=[0.0] * len(PHASES))
    half = other[:40] + record[40:]
    assert parse_heartbeat(half) is None
    assert parse_heartbeat(bytes(RECORD_BYTES)) is None
    assert parse_heartbeat(record[:-1]) is None
