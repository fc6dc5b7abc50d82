"""A healthy model gives no finding, whatever is in it."""

import keras
import models
import pytest

HEALTHY = {
    "plain": models.network,
    "adam": lambda: models.network(optimizer=keras.optimizers.Adam(0.01)),
    "clipnorm": lambda: models.network(optimizer=keras.optimizers.SGD(0.05, clipnorm=0.5)),
    "global_clipnorm": lambda: models.network(optimizer=keras.optimizers.Adam(0.05, global_clipnorm=0.1)),
    "dropout": lambda: models.network(keras.layers.Dropout(0.5, name="drop")),
    "noise": lambda: models.network(keras.layers.GaussianNoise(0.5)),
    "batch_normalization": lambda: models.network(keras.layers.BatchNormalization(synchronized=True, name="bn")),
    "layer_that_keeps_a_mean": lambda: models.network(models.RunningMean()),
    "own_train_step": lambda: models.own_train_step(models.ScaledLoss),
    "run_eagerly": lambda: models.network(keras.layers.Dropout(0.5), run_eagerly=True),
    "loss_scale": lambda: models.network(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_no_finding(compare, name):
    result = compare(HEALTHY[name], models.batches(rows=21))  # the last batch has 5 rows
    assert not result.findings, "\n".join(map(str, result.findings))
    assert (result.steps, result.replicas) == (3, 2)
    assert result.compared > 3 * 8
    assert not result.notes
