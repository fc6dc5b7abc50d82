"""When to save, as a table of what is known and what is decided."""

import pytest

from tfdist.checkpointing.schedule import SaveSchedule, answer_by_clock, decide_save
from tfdist.errors import ArgumentError

EVERY_20 = SaveSchedule(interval_steps=20, each_epoch=True)
EVERY_MINUTE = SaveSchedule(interval_s=60.0, each_epoch=False)
EPOCHS = SaveSchedule()
NOTHING = SaveSchedule(each_epoch=False)


@pytest.mark.parametrize(
    ("schedule", "known", "save", "reason"),
    [
        (EVERY_20, {"step": 20, "last_saved_step": None}, True, "save_interval_steps=20"),
        (EVERY_20, {"step": 40, "last_saved_step": 20}, True, "save_interval_steps=20"),
        (EVERY_20, {"step": 21, "last_saved_step": 20}, False, "nothing is due"),
        (EVERY_20, {"step": 0, "last_saved_step": None}, False, "nothing is due"),  # 0 is a multiple, of no work
        (EVERY_20, {"step": 20, "last_saved_step": 20}, False, "step 20 is saved already"),  # just restored
        # The multiples count, not the distance to a save for another reason: all runs save at the same steps.
        (EVERY_20, {"step": 40, "last_saved_step": 39}, True, "save_interval_steps=20"),
        (EVERY_20, {"step": 33, "last_saved_step": 20, "epoch_ends": True}, True, "the epoch ends"),
        # At the end of an epoch the state differs from that after its last step.
        (EVERY_20, {"step": 40, "last_saved_step": 40, "epoch_ends": True}, True, "the epoch ends"),
        (EVERY_20, {"step": 7, "last_saved_step": None, "request": "SIGTERM"}, True, "SIGTERM"),
        (EVERY_20, {"step": 20, "last_saved_step": 20, "request": "SIGTERM"}, False, "step 20 is saved already"),
        (EVERY_20, {"step": 20, "last_saved_step": 0, "request": "SIGTERM"}, True, "SIGTERM"),
        (EVERY_MINUTE, {"step": 7, "last_saved_step": 3}, False, "nothing is due"),
        (EVERY_MINUTE, {"step": 7, "last_saved_step": 3, "time_has_come": True}, True, "save_interval_s=60"),
        (EVERY_MINUTE, {"step": 7, "last_saved_step": 7, "time_has_come": True}, False, "step 7 is saved already"),
        (EVERY_MINUTE, {"step": 7, "last_saved_step": 3, "epoch_ends": True}, False, "nothing is due"),
        (EPOCHS, {"step": 7, "last_saved_step": None, "epoch_ends": True}, True, "the epoch ends"),
        (EPOCHS, {"step": 7, "last_saved_step": None}, False, "nothing is due"),
        (NOTHING, {"step": 7, "last_saved_step": None, "epoch_ends": True}, False, "nothing is due"),
        (NOTHING, {"step": 7, "last_saved_step": None, "request": "an exception"}, True, "an exception"),
    ],
)
def test_decision(schedule, known, save, reason):
    decision = decide_save(schedule, **known)
    assert (decision.save, decision.reason) == (save, reason)


@pytest.mark.parametrize(
    ("now", "last", "seconds_per_step", "save", "steps"),
    [
        (0.0, 0.0, None, False, 1),  # the length of a step is not known yet
        (10.0, 0.0, 0.1, False, 250),  # 50 s are left: ask after half of them
        (58.0, 0.0, 0.1, False, 20),  # 2 s are left: not more often than every 20th of the interval ...
        (58.0, 0.0, 0.001, False, 2000),
        (10.0, 0.0, 1e-6, False, 10_000),  # ... nor more rarely than that
        (10.0, 0.0, 100.0, False, 1),  # a step is longer than the interval
        (60.0, 0.0, 0.1, True, 300),  # 60 s are left until the one after
        (61.0, 0.0, None, True, 1),
        (5.0, 9.0, 0.1, False, 300),  # a clock that went back
    ],
)
def test_answers_of_the_chief(now, last, seconds_per_step, save, steps):
    answer = answer_by_clock(EVERY_MINUTE, step=100, now=now, last_save_time=last, seconds_per_step=seconds_per_step)
    assert (answer.save, answer.next_step - 100) == (save, steps)


def test_a_save_by_the_clock_is_late_by_a_20th_of_the_interval_at_most():
    # Steps of 0.3 s: the whole training as the callback would run it, by counting.
    step, saved_at, questions, next_question, late = 0, 0.0, 0, 0, []
    while step < 5000:
        now = step * 0.3
        if step == next_question:
            questions += 1
            answer = answer_by_clock(EVERY_MINUTE, step=step, now=now, last_save_time=saved_at, seconds_per_step=0.3)
            assert answer.next_step > step
            next_question = answer.next_step
            if answer.save:
                late.append(now - saved_at - 60.0)
                saved_at = now
        step += 1
    assert len(late) >= 23
    assert max(late) <= 60.0 / 20 + 0.3
    assert questions / len(late) < 8


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"interval_steps": 0}, "save_interval_steps cannot be 0"),
        ({"interval_steps": 2.0}, "save_interval_steps cannot be 2.0"),
        ({"interval_steps": True}, "save_interval_steps cannot be True"),
        ({"interval_s": 0}, "save_interval_s cannot be 0"),
        ({"interval_s": float("nan")}, "save_interval_s cannot be nan"),
        ({"interval_s": float("inf")}, "save_interval_s cannot be inf"),
        ({"interval_s": "60"}, "save_interval_s cannot be '60'"),
    ],
)
def test_schedules_that_cannot_be(arguments, expected):
    with pytest.raises(ArgumentError, match=expected):
        SaveSchedule(**arguments)


def test_whether_the_clock_is_asked():
    assert EVERY_MINUTE.needs_clock
    assert not EVERY_20.needs_clock
