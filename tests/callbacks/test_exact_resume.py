"""A `fit` that was interrupted anywhere ends as one that was not: weights, optimizer, history, callbacks."""

import pytest
from trainings import STEPS, Training, assert_equal, checkpoint, killed, shuffled_dataset

#: ReduceLROnPlateau reads the learning rate with `np.array(variable)`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.mark.parametrize("kind", ["none", "mirrored"])
@pytest.mark.parametrize("data", [None, shuffled_dataset])
@pytest.mark.parametrize("step", [1, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS, 3 * STEPS + 2])
def test_weights_and_history(tmp_path, kind, data, step):
    undisturbed = Training(kind, data).run().result()
    watched = Training(kind, data).run(checkpoint(tmp_path / "a", save_interval_steps=1)).result()
    assert_equal(watched, undisturbed)
    killed(Training(kind, data), checkpoint(tmp_path / "b", save_interval_steps=1), step)
    resumed = Training(kind, data).run(checkpoint(tmp_path / "b", save_interval_steps=1)).result()
    assert_equal(resumed, undisturbed)
