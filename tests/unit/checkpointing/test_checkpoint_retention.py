"""What is kept, as a table; and what holds for every table."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.checkpointing.retention import CheckpointFacts, Retention, kept_checkpoints
from tfdist.errors import ArgumentError


def saved(*steps, losses=()):
    losses = dict(zip(steps, losses, strict=False))
    return [
        CheckpointFacts(f"c{step}", step, 1000.0 + step, {"loss": losses[step]} if step in losses else {})
        for step in steps
    ]


EVERY_1000 = {"keep_newest": 1, "keep_every_steps": 1000}
BEST = {"keep_newest": 1, "keep_best": 1, "monitor": "loss"}


@pytest.mark.parametrize(
    ("checkpoints", "rules", "kept"),
    [
        ([], {}, []),
        (saved(10), {"keep_newest": 1}, ["c10"]),
        (saved(10, 20, 30, 40), {}, ["c20", "c30", "c40"]),
        (saved(40, 10, 30, 20), {"keep_newest": 2}, ["c30", "c40"]),  # in any order
        (saved(10, 20, 30), {"keep_newest": None}, ["c10", "c20", "c30"]),
        (saved(10, 20, 30, losses=(3.0, 1.0, 2.0)), BEST, ["c20", "c30"]),
        (saved(10, 20, 30, losses=(3.0, 1.0, 2.0)), {**BEST, "mode": "max"}, ["c10", "c30"]),
        (saved(10, 20, 30, losses=(1.0, 1.0, 2.0)), BEST, ["c20", "c30"]),  # of equals, the newer one
        (saved(10, 20, 30, losses=(math.nan, math.nan)), BEST, ["c30"]),  # NaN is never the best
        (saved(10, 20, 30), BEST, ["c30"]),  # nothing was measured
        (saved(10, 20, 30, losses=(1.0, 2.0)), {**BEST, "monitor": "accuracy"}, ["c30"]),
        (
            saved(100, 200, 900, 1100, 1900, 2300),
            EVERY_1000,
            ["c100", "c1100", "c2300"],
        ),
        (saved(1000, 2000, 2500), EVERY_1000, ["c1000", "c2000", "c2500"]),
    ],
)
def test_kept(checkpoints, rules, kept):
    reasons = kept_checkpoints(checkpoints, Retention(**rules))
    assert sorted(reasons) == kept
    assert all(reasons.values())


def test_of_two_of_one_step_the_later_one_is_newer():
    checkpoints = [CheckpointFacts("b", 10, 2.0), CheckpointFacts("a", 10, 3.0)]
    assert kept_checkpoints(checkpoints, Retention(keep_newest=1)) == {"a": "the newest"}


def test_the_one_just_written_stays():
    # After a return to an older checkpoint, the newest by steps may be another run's.
    kept = kept_checkpoints(saved(100, 200), Retention(keep_newest=1), protected=("c100",))
    assert kept == {"c200": "the newest", "c100": "just written"}


@given(
    st.lists(
        st.builds(
            CheckpointFacts,
            name=st.text("abcdef", min_size=4, max_size=8),
            step=st.integers(0, 50),
            time=st.floats(0, 9),
            metrics=st.dictionaries(st.just("loss"), st.floats()),
        ),
        unique_by=lambda found: found.name,
    ),
    st.builds(
        Retention,
        keep_newest=st.none() | st.integers(1, 5),
        keep_best=st.integers(0, 3),
        monitor=st.just("loss"),
        mode=st.sampled_from(["min", "max"]),
        keep_every_steps=st.none() | st.integers(1, 20),
    ),
)
def test_for_every_table(checkpoints, retention):
    kept = kept_checkpoints(checkpoints, retention)
    assert set(kept) <= {found.name for found in checkpoints}
    if checkpoints:
        newest = max(checkpoints, key=lambda found: (found.step, found.time, found.name))
        assert kept[newest.name] == "the newest"
    # To remove what is not kept, and to ask again, changes nothing.
    assert kept_checkpoints([found for found in checkpoints if found.name in kept], retention) == kept


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"keep_newest": 0}, "keep_newest cannot be 0"),
        ({"keep_best": -1}, "keep_best cannot be -1"),
        ({"keep_best": 1}, "monitor cannot be None"),
        ({"keep_every_steps": 0}, "keep_every_steps cannot be 0"),
        ({"mode": "least"}, "mode cannot be 'least'"),
    ],
)
def test_rules_that_cannot_be(rules, expected):
    with pytest.raises(ArgumentError, match=expected):
        Retention(**rules)
