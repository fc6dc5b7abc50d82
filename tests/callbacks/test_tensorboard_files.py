"""What DistributedTensorBoard writes in one process: Keras's tags, once, also after a kill."""

import contextlib
import resource
import shutil

import keras
import numpy as np
import pytest
from event_points import read_points
from trainings import KillAt, Killed

import tfdist
from tfdist.callbacks import DistributedTensorBoard, FaultTolerantCheckpoint
from tfdist.keras_compat.gradient_norms import gradient_norms

ROWS, BATCH, STEPS, EPOCHS = 40, 8, 5, 3


def build(scope=contextlib.nullcontext):
    keras.utils.set_random_seed(1)
    with scope():
        layers = [keras.layers.Input((4,)), keras.layers.Dropout(0.2), keras.layers.Dense(1, name="last")]
        model = keras.Sequential(layers, name="model")
        model.compile("adam", "mse", metrics=["mae"])
    return model


def fit(model, callbacks, epochs=EPOCHS, **options):
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
    data = {"x": x, "y": x[:, :1], "batch_size": BATCH, "validation_data": (x[:8], x[:8, :1]), "verbose": 0}
    return model.fit(**data, epochs=epochs, callbacks=callbacks, **options).history


def scalars(points):
    """The points of curves that do not depend on time."""
    return {
        key: [(step, round(value, 6)) for step, value in values]
        for key, values in points.items()
        if key[0] in ("train", "validation") and key[1] != "keras" and not key[1].endswith("histogram")
    }


@pytest.mark.parametrize("scope", [contextlib.nullcontext, lambda: tfdist.mirrored_strategy(["CPU:0"]).scope()])
def test_the_curves_of_a_training(tmp_path, scope):
    history = fit(build(scope), [DistributedTensorBoard(tmp_path, update_freq="batch", histogram_freq=1)])
    points = read_points(tmp_path)
    for name, values in history.items():
        run = "validation" if name.startswith("val_") else "train"
        found = points[run, f"epoch_{name.removeprefix('val_')}"]
        assert found == [(epoch, pytest.approx(value, rel=1e-6)) for epoch, value in enumerate(values)]
    assert [step for step, _ in points["train", "batch_loss"]] == list(range(1, EPOCHS * STEPS + 1))
    assert [step for step, _ in points["train", "epoch_learning_rate"]] == [0, 1, 2]
    assert [step for step, _ in points["validation", "evaluation_loss_vs_iterations"]] == [5, 10, 15]
    assert any(tag.endswith("kernel/histogram") for run, tag in points if run == "train")
    assert ("train", "keras") in points
    assert ("job", "custom_scalars__config__") in points


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.SGD(0.0, clipnorm=1e-3),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0), initial_scale=64.0),
    ],
)
def test_norms_of_gradients_are_those_before_clipping_and_without_loss_scale(tmp_path, optimizer):
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
    strategy = tfdist.mirrored_strategy(["CPU:0"])
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer(), "mse")
    between = []  # what steps have worked out that nobody had asked

    def look(batch, logs):
        if batch % 2 == 0:
            between.append(gradient_norms(strategy).take())

    weights, _ = model.get_weights()
    model.fit(
        *(x, x[:, :1]),
        **{"batch_size": BATCH, "shuffle": False, "verbose": 0},
        callbacks=[
            DistributedTensorBoard(tmp_path, performance_freq=2),
            keras.callbacks.LambdaCallback(on_train_batch_end=look),
        ],
    )
    assert between == [None] * 3
    points = read_points(tmp_path)
    for run in ("job", "workers/worker_0"):
        found = dict(points[run, "gradient/norm"])
        assert list(found) == [2, 4]
        for step, norm in found.items():
            rows = x[(step - 1) * BATCH : step * BATCH]
            errors = 2 * (rows @ weights - rows[:, :1]) / BATCH
            expected = np.linalg.norm([*(rows.T @ errors)[:, 0], errors.sum()])
            assert norm == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("killed_after", "is_last"),
    [
        *((3, True), (10, False)),
        *(pytest.param(*each, marks=pytest.mark.campaign) for each in ((7, True), (10, True), (13, True), (7, False))),
    ],
)
def test_a_resumed_training_goes_on_in_the_same_curves(tmp_path, killed_after, is_last):
    def callbacks(name, *more):
        board = DistributedTensorBoard(tmp_path / name, update_freq="batch", histogram_freq=1)
        checkpoint = FaultTolerantCheckpoint(tmp_path / f"{name} checkpoints", save_interval_steps=2)
        return [*([checkpoint, board] if is_last else [board, checkpoint]), *more]

    fit(build(), callbacks("whole"))
    with pytest.raises(Killed):
        fit(build(), callbacks("killed", KillAt(killed_after)))
    fit(build(), callbacks("killed"))
    right, found = read_points(tmp_path / "whole"), read_points(tmp_path / "killed")
    assert scalars(found) == scalars(right)
    counts = {key: len(values) for key, values in right.items() if key[1].endswith("histogram")}
    assert {key: len(found[key]) for key in counts} == counts
    for values in found.values():
        steps = [step for step, _ in values]
        assert steps == sorted(steps)


def test_a_second_training_in_a_directory_hides_the_first_one(tmp_path):
    fit(build(), [DistributedTensorBoard(tmp_path)], epochs=3)
    files = sorted((tmp_path / "train").iterdir())
    fit(build(), [DistributedTensorBoard(tmp_path)], epochs=2)
    assert [step for step, _ in read_points(tmp_path)["train", "epoch_loss"]] == [0, 1]
    assert set(files) < set((tmp_path / "train").iterdir())


def test_initial_epoch_and_evaluate_go_on(tmp_path):
    model, board = build(), DistributedTensorBoard(tmp_path, update_freq=1)
    fit(model, [board], epochs=2)
    fit(model, [board], epochs=3, initial_epoch=2)
    x = np.zeros((8, 4), "float32")
    model.evaluate(x, x[:, :1], verbose=0, callbacks=[DistributedTensorBoard(tmp_path)])
    points = read_points(tmp_path)
    assert [step for step, _ in points["train", "epoch_loss"]] == [0, 1, 2]
    assert [step for step, _ in points["train", "batch_loss"]] == list(range(1, 16))
    assert [step for step, _ in points["validation", "epoch_loss"]] == [0, 1, 2]


def test_pictures_and_a_tracker(tmp_path):
    logged = []
    board = DistributedTensorBoard(
        tmp_path,
        images=lambda epoch: {"noise": np.full((2, 4, 5, 3), epoch / 3)},
        log=lambda values, step: logged.append((values, step)),
    )
    history = fit(build(), [board])
    points = read_points(tmp_path)
    (first, _, last) = points["train", "epoch_noise"]
    assert (first[0], last[0]) == (0, 2)
    losses = [values["train/epoch_loss"] for values, _ in logged if "train/epoch_loss" in values]
    assert losses == pytest.approx(history["loss"])
    assert [step for values, step in logged if "train/epoch_loss" in values] == [5, 10, 15]


class RemoveAt(keras.callbacks.Callback):
    def __init__(self, act):
        super().__init__()
        self.act = act

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            self.act()


def test_a_removed_directory_and_one_that_cannot_be_made(tmp_path):
    board = DistributedTensorBoard(tmp_path / "logs", update_freq="batch")
    assert len(fit(build(), [board, RemoveAt(lambda: shutil.rmtree(tmp_path / "logs"))])["loss"]) == EPOCHS
    (tmp_path / "file").write_text("")
    assert len(fit(build(), [DistributedTensorBoard(tmp_path / "file" / "logs")])["loss"]) == EPOCHS


def test_a_full_disk(tmp_path, caplog):
    """A file may have 100 kB, which is less than one of the pictures."""

    class Full(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

    noise = np.random.default_rng(0).random((1, 300, 300, 3))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        board = DistributedTensorBoard(tmp_path, images=lambda epoch: {"noise": noise})
        history = fit(build(), [Full(), board])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(history["loss"]) == EPOCHS
    said = [text for text in caplog.messages if "are written no more" in text]
    assert len([text for text in said if str(tmp_path / "train") in text]) == 1


def test_a_tracker_that_fails(tmp_path, caplog):
    def log(values, step):
        raise ConnectionError("no answer")

    assert len(fit(build(), [DistributedTensorBoard(tmp_path, log=log)])["loss"]) == EPOCHS
    assert len([text for text in caplog.messages if "`log` is called no more" in text]) == 1


def test_a_real_tracker(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the newest versions ask for it
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        history = fit(build(), [DistributedTensorBoard(tmp_path / "logs", log=mlflow.log_metrics)])
    points = mlflow.MlflowClient().get_metric_history(run.info.run_id, "train/epoch_loss")
    assert [(each.step, each.value) for each in points] == list(zip((5, 10, 15), history["loss"], strict=True))


@pytest.mark.parametrize(
    "arguments",
    [{"update_freq": 0}, {"update_freq": "step"}, {"performance_freq": 0}, {"profile_steps": (3, 2)}],
)
def test_bad_arguments(arguments):
    with pytest.raises(tfdist.errors.ArgumentError, match="DistributedTensorBoard cannot be made"):
        DistributedTensorBoard("logs", **arguments)
