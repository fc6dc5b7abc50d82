"""A `fit` that was interrupted anywhere ends as one that was not: weights, optimizer, history, callbacks."""

import functools

import pytest
from trainings import STEPS, Training, assert_equal, checkpoint, killed, shuffled_dataset

#: ReduceLROnPlateau reads the learning rate with `np.array(variable)`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

arrays = None


@functools.cache
def undisturbed(kind, data):
    return Training(kind, data).run().result()


@pytest.mark.parametrize(
    ("kind", "data", "step"),
    [
        pytest.param("none", arrays, 1, marks=pytest.mark.campaign),
        ("none", arrays, STEPS),
        ("none", shuffled_dataset, STEPS - 1),
        pytest.param("none", shuffled_dataset, STEPS + 1, marks=pytest.mark.campaign),
        ("mirrored", arrays, 2 * STEPS + 2),
        pytest.param("mirrored", shuffled_dataset, 2 * STEPS, marks=pytest.mark.campaign),
        ("mirrored", shuffled_dataset, 3 * STEPS - 1),
    ],
)
def test_killed_after_a_step(tmp_path, kind, data, step):
    killed(Training(kind, data), checkpoint(tmp_path, save_interval_steps=1), step)
    resumed = Training(kind, data).run(checkpoint(tmp_path, save_interval_steps=4)).result()
    assert_equal(resumed, undisturbed(kind, data))
