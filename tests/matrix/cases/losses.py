"""Every loss with every reduction, with sample weights and masks: the gradient is that of the global batch."""

from __future__ import annotations

import keras
import numpy as np
from table import add_case, case

from cases.building import dataset, fixed_weights, outcome, regression

L = keras.losses

#: Loss -> how its targets and the model's outputs look.
LOSSES = {
    "mean_squared_error": (L.MeanSquaredError, "real"),
    "mean_absolute_error": (L.MeanAbsoluteError, "real"),
    "mean_absolute_percentage_error": (L.MeanAbsolutePercentageError, "real"),
    "mean_squared_logarithmic_error": (L.MeanSquaredLogarithmicError, "positive"),
    "huber": (L.Huber, "real"),
    "log_cosh": (L.LogCosh, "real"),
    "cosine_similarity": (L.CosineSimilarity, "real"),
    "poisson": (L.Poisson, "positive"),
    "hinge": (L.Hinge, "sign"),
    "squared_hinge": (L.SquaredHinge, "sign"),
    "categorical_hinge": (L.CategoricalHinge, "one_hot"),
    "kl_divergence": (L.KLDivergence, "one_hot"),
    "binary_crossentropy": (L.BinaryCrossentropy, "one_hot"),
    "binary_focal_crossentropy": (L.BinaryFocalCrossentropy, "one_hot"),
    "categorical_crossentropy": (L.CategoricalCrossentropy, "one_hot"),
    "categorical_focal_crossentropy": (L.CategoricalFocalCrossentropy, "one_hot"),
    "categorical_generalized_crossentropy": (getattr(L, "CategoricalGeneralizedCrossEntropy", None), "label"),
    "sparse_categorical_crossentropy": (L.SparseCategoricalCrossentropy, "label"),
    "dice": (lambda **keywords: L.Dice(axis=(1,), **keywords), "one_hot"),
    "tversky": (lambda **keywords: L.Tversky(axis=(1,), **keywords), "one_hot"),
}
#: One of each kind is tried with every reduction: what a reduction does is the same for all losses.
EVERY_REDUCTION = ("mean_squared_error", "sparse_categorical_crossentropy")
REDUCTIONS = ("sum_over_batch_size", "sum", "mean_with_sample_weight", None)
ON_ONE_DEVICE = "a worker computes the loss of a whole batch on one device, with Keras's own code"
ACTIVATIONS = {"real": None, "positive": "softplus", "sign": "tanh", "one_hot": "softmax", "label": "softmax"}


def _is_promised(key, reduction):
    """Keras's mean of a loss that is not reduced weighs batches by the square of their rows: shares do not add up."""
    return key.startswith("sync/") and not (reduction is None and key == "sync/history/loss")


def targets(kind, rows):
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, size=rows)
    real = rng.normal(size=(rows, 3))
    return {
        "real": real,
        "positive": np.abs(real),
        "sign": np.sign(real),
        "one_hot": np.eye(3)[labels],
        "label": labels,
    }[kind].astype("int64" if kind == "label" else keras.config.floatx())


def _add(name, make, kind):
    def run(strategy):
        x, _ = regression(13)
        y = targets(kind, 13)
        weight = np.linspace(0.0, 2.0, 13).astype(keras.config.floatx())
        found = {}
        for reduction in REDUCTIONS if name in EVERY_REDUCTION else REDUCTIONS[:1]:
            with strategy.scope():
                model = keras.Sequential(
                    [keras.layers.Input((4,)), keras.layers.Dense(3, activation=ACTIVATIONS[kind])]
                )
                fixed_weights(model)
                rate = 1e-4 if name == "mean_absolute_percentage_error" else 0.01
                model.compile(keras.optimizers.SGD(rate), make(reduction=reduction))
            history = model.fit(dataset(x, y, weight, batch=5), epochs=2, verbose=0)
            found |= {f"{k}/{reduction}": v for k, v in outcome(model, history).items() if _is_promised(k, reduction)}
        return found

    add_case(
        f"loss_{name}", run, tolerance=1e-12, floatx="float64", loss_falls=False, not_applicable={"ps": ON_ONE_DEVICE}
    )


for _name, (_make, _kind) in LOSSES.items():
    if _make is not None:  # newer Kerases have more losses
        _add(_name, _make, _kind)


def _add_error(name, make):
    def run(strategy):
        x, _ = regression(13)
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, activation="softmax")])
            fixed_weights(model)
            model.compile(keras.optimizers.SGD(0.1), make())
        return outcome(model, model.fit(dataset(x, targets("one_hot", 13), batch=5), verbose=0), prefix="shape")

    message = "cannot be worked out by several replicas"
    add_case(name, run, errors={"mirrored": message, "multi": message})


_add_error("dice_over_all_rows", L.Dice)
_add_error("tversky_over_all_rows", L.Tversky)


def _tokens():
    rng = np.random.default_rng(9)
    tokens = rng.integers(1, 9, size=(13, 6))
    for row, length in enumerate(rng.integers(1, 7, size=13)):
        tokens[row, length:] = 0
    return tokens.astype("int32")


def _add_masked(reduction):
    def run(strategy):
        tokens = _tokens()
        y = tokens[..., None].astype(keras.config.floatx()) / 4
        weight = np.linspace(0.2, 2.0, 13 * 6).reshape(13, 6).astype(keras.config.floatx())
        found = {}
        for weighted in (False, True):
            with strategy.scope():
                model = keras.Sequential(
                    [
                        keras.layers.Input((6,), dtype="int32"),
                        keras.layers.Embedding(9, 4, mask_zero=True),
                        keras.layers.Dense(1),
                    ]
                )
                fixed_weights(model)
                model.compile(
                    keras.optimizers.SGD(0.02),
                    L.MeanSquaredError(reduction=reduction),
                    metrics=["mae"],
                    weighted_metrics=[keras.metrics.MeanSquaredError(name="weighted")],
                )
            rows = (tokens, y, weight) if weighted else (tokens, y)
            history = model.fit(dataset(*rows, batch=5), epochs=2, verbose=0)
            kept = {k: v for k, v in outcome(model, history).items() if _is_promised(k, reduction)}
            found |= {f"{k}/{weighted}": v for k, v in kept.items()}
        return found

    add_case(
        f"masked_loss_{reduction}",
        run,
        tolerance=1e-12,
        floatx="float64",
        loss_falls=False,
        wide=True,
        not_applicable={"ps": ON_ONE_DEVICE},
    )


for _reduction in REDUCTIONS:
    _add_masked(_reduction)


@case(tolerance=1e-12, floatx="float64", wide=True)
def custom_loss_that_returns_a_scalar(strategy):
    x, y = regression(13)

    def mean_of_squares(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred))

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.01), mean_of_squares)
    return outcome(model, model.fit(dataset(x, y, batch=5), epochs=3, verbose=0), x, y)


@case(tolerance=1e-12, floatx="float64", wide=True)
def losses_of_two_outputs_on_uneven_batches(strategy):
    x, y = regression(13)
    with strategy.scope():
        inputs = keras.Input((4,))
        outputs = {"a": keras.layers.Dense(1, name="a")(inputs), "b": keras.layers.Dense(1, name="b")(inputs)}
        model = keras.Model(inputs, outputs)
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.01), {"a": "mse", "b": "mae"}, loss_weights={"a": 1.0, "b": 0.3})
    return outcome(model, model.fit(dataset(x, {"a": y, "b": y * 2}, batch=5), epochs=3, verbose=0))
