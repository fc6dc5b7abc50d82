"""A `fit` that was interrupted anywhere ends as one that was not: weights, optimizer, history, callbacks."""

import functools

import keras
import pytest
from trainings import STEPS, Training, assert_equal, build, checkpoint, killed, shuffled_dataset

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


def averaged():
    return build(keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True, ema_overwrite_frequency=4))


def accumulated():
    return build(keras.optimizers.Adam(0.02, gradient_accumulation_steps=3))


def scaled():
    return build(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.02), dynamic_growth_steps=4))


def eager():
    model = build()
    model.run_eagerly = True
    return model


def scheduled():
    return build(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.03, 20)))


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["none", "mirrored"])
@pytest.mark.parametrize("model", [averaged, accumulated, scaled, eager, scheduled])
def test_optimizers_and_eager_steps(tmp_path, kind, model):
    def training():
        return Training(kind, shuffled_dataset, build=model, callbacks=lambda: [])

    expected = training().run().result()
    killed(training(), checkpoint(tmp_path, save_interval_steps=1), STEPS + 3)
    assert_equal(training().run(checkpoint(tmp_path)).result(), expected)
