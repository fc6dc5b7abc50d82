"""After how many steps workers ask each other again."""

import pytest

from tfdist.callbacks.questions import steps_to_next_question


@pytest.mark.parametrize(
    ("steps_before", "seconds_before", "longest", "expected"),
    [
        (1, 0.001, None, 2),  # steps are short, but one of them says little
        (512, 0.5, None, 1024),
        (800, 1.0, None, 800),
        (800, 0.5, None, 1600),
        (800, 4.0, None, 200),  # they have become longer
        (1, 5.0, None, 1),  # a step takes longer than the period
        (1, 0.0, None, 2),
        (800, 1.0, 30, 30),  # a save may be due sooner
        (800, 1.0, 0, 1),
    ],
)
def test_table(steps_before, seconds_before, longest, expected):
    found = steps_to_next_question(steps_before=steps_before, seconds_before=seconds_before, longest=longest)
    assert found == expected
