"""Each seeded fault is found, with its name and its cause."""

import keras
import models

from tfdist.keras_compat import optimizers, step_view
from tfdist.verification import Cause


def only_finding(result):
    assert len(result.findings) == 1, "\n".join(map(str, result.findings))
    print(result.findings[0])
    return result.findings[0]


def test_wrong_loss_scaling(compare):
    found = only_finding(compare(lambda: models.own_train_step(models.OwnMeanLoss), models.batches()))
    assert (found.step, found.what, found.cause) == (0, "gradient", Cause.LOSS_SCALING)
    assert found.name == "hidden/kernel"
    assert "2 times the right one" in found.evidence
    assert "tfdist.scale_loss" in str(found)


def test_shared_seed(compare):
    with models.switched_off("SeedGenerator.next"):
        found = only_finding(compare(lambda: models.network(keras.layers.Dropout(0.5, name="drop")), models.batches()))
    assert (found.step, found.what, found.cause) == (0, "seed generator", Cause.SHARED_SEED)
    assert found.name == "drop"


def test_uneven_last_batch(compare):
    off = ["losses.loss.scale_loss_for_distribution", "losses.loss.unscale_loss_for_distribution"]
    with models.switched_off(*off):
        found = only_finding(compare(models.network, models.batches(rows=21)))
    assert (found.step, found.what, found.cause) == (2, "gradient", Cause.UNEVEN_BATCH)
    assert found.name == "sequential/hidden/kernel"
    assert "2, 3 rows" in found.evidence


def test_unsynchronised_statistics(compare, monkeypatch):
    remember = step_view.ReplicaView.assign

    def assign(view, variable, value):
        if variable.path.endswith("/running"):
            return step_view.CopyView.assign(view, variable, value)
        return remember(view, variable, value)

    monkeypatch.setattr(step_view.ReplicaView, "assign", assign)
    found = only_finding(compare(lambda: models.network(models.RunningMean(name="mean")), models.batches()))
    assert (found.step, found.what, found.cause) == (0, "variable", Cause.UNSYNCHRONISED_STATISTICS)
    assert found.name == "sequential/mean/running"


def test_clipping_before_summing(compare):
    with models.switched_off(*models.labels_of(optimizers)):
        found = only_finding(
            compare(lambda: models.network(optimizer=keras.optimizers.SGD(0.05, clipnorm=0.2)), models.batches())
        )
    assert (found.step, found.what, found.cause) == (0, "weight", Cause.CLIPPED_BEFORE_SUM)
    assert found.name == "sequential/hidden/kernel"
    assert "SGD has clipnorm=0.2" in found.evidence


def test_clipping_in_train_step(compare):
    found = only_finding(compare(lambda: models.own_train_step(models.OwnClipping), models.batches()))
    assert (found.step, found.what, found.cause) == (0, "gradient", Cause.CLIPPED_BEFORE_SUM)
    assert found.name == "hidden/kernel"
