"""Metrics: the epoch's value is the one of all rows, whatever the metric's form."""

from __future__ import annotations

import keras
import numpy as np
from table import add_case, case

from cases.building import BATCH, classification, dataset, fixed_weights, outcome, regression

m = keras.metrics

BINARY = {
    "auc": lambda: m.AUC(num_thresholds=20),
    "auc_pr": lambda: m.AUC(curve="PR", num_thresholds=20),
    "precision": lambda: m.Precision(thresholds=0.4),
    "recall": m.Recall,
    "true_negatives": m.TrueNegatives,
    "recall_at_precision": lambda: m.RecallAtPrecision(0.5, num_thresholds=20),
    "f1": lambda: m.F1Score(threshold=0.5),
    "binary_iou": m.BinaryIoU,
    "mean_iou": lambda: m.MeanIoU(num_classes=2),
    "root_mean_squared_error": m.RootMeanSquaredError,
    "cosine_similarity": m.CosineSimilarity,
    "r2": m.R2Score,
    "binary_accuracy": m.BinaryAccuracy,
    "hinge": m.Hinge,
    "squared_hinge": m.SquaredHinge,
    "true_positives": m.TruePositives,
    "false_positives": m.FalsePositives,
    "false_negatives": m.FalseNegatives,
    "precision_at_recall": lambda: m.PrecisionAtRecall(0.5, num_thresholds=20),
    "sensitivity_at_specificity": lambda: m.SensitivityAtSpecificity(0.5, num_thresholds=20),
    "specificity_at_sensitivity": lambda: m.SpecificityAtSensitivity(0.5, num_thresholds=20),
    "iou": lambda: m.IoU(num_classes=2, target_class_ids=[1]),
    "accuracy": m.Accuracy,
    "binary_crossentropy": m.BinaryCrossentropy,
    "mean_absolute_error": m.MeanAbsoluteError,
    "mean_absolute_percentage_error": m.MeanAbsolutePercentageError,
    "mean_squared_logarithmic_error": m.MeanSquaredLogarithmicError,
    "log_cosh_error": m.LogCoshError,
    "poisson": m.Poisson,
}

CATEGORICAL = {
    "categorical_accuracy": m.CategoricalAccuracy,
    "top_k": lambda: m.TopKCategoricalAccuracy(k=2),
    "f1_macro": lambda: m.F1Score(average="macro"),
    "f1_per_class": lambda: m.F1Score(average=None),
    "one_hot_mean_iou": lambda: m.OneHotMeanIoU(num_classes=3),
    "kl": m.KLDivergence,
    "categorical_crossentropy": m.CategoricalCrossentropy,
    "categorical_hinge": m.CategoricalHinge,
    "one_hot_iou": lambda: m.OneHotIoU(num_classes=3, target_class_ids=[0, 2]),
    "f_beta": lambda: m.FBetaScore(beta=2.0, average="weighted"),
    "pearson_correlation": lambda: m.PearsonCorrelation(axis=-1),
    "concordance_correlation": lambda: m.ConcordanceCorrelation(axis=-1),
    "auc_multi_label": lambda: m.AUC(multi_label=True, num_labels=3, num_thresholds=20),
}


def _add(group, makers, classes):
    def run(strategy):
        x, labels = classification(30, classes=max(classes, 2))
        if classes == 1:
            y, activation, loss = labels[:, None].astype("float32"), "sigmoid", "binary_crossentropy"
        else:
            y, activation = keras.utils.to_categorical(labels, classes).astype("float32"), "softmax"
            loss = "categorical_crossentropy"
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(classes, activation=activation)])
            fixed_weights(model)
            metrics = [make() for make in makers.values()]
            for metric, name in zip(metrics, makers, strict=True):
                metric.name = name
            model.compile(keras.optimizers.SGD(0.1), loss, metrics=metrics)
        history = model.fit(dataset(x, y, batch=7), epochs=3, verbose=0, validation_data=(x[:11], y[:11]))
        return outcome(model, history, x, y)

    add_case(f"metrics_{group}", run, wide=True)


_add("binary", BINARY, 1)
_add("categorical", CATEGORICAL, 3)


@case()
def metrics_of_sparse_labels(strategy):
    x, labels = classification(30, classes=3)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, activation="softmax")])
        fixed_weights(model)
        metrics = [
            m.SparseCategoricalAccuracy(),
            m.SparseCategoricalCrossentropy(),
            m.SparseTopKCategoricalAccuracy(k=2),
        ]
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=metrics)
    return outcome(model, model.fit(dataset(x, labels, batch=7), epochs=2, verbose=0), x, labels)


@case()
def weighted_metrics(strategy):
    x, y = regression()
    weight = np.linspace(0.0, 2.0, len(x)).astype("float32")
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        fixed_weights(model)
        model.compile(
            keras.optimizers.SGD(0.05), "mse", metrics=["mae"], weighted_metrics=[m.MeanSquaredError(name="weighted")]
        )
    history = model.fit(x, y, sample_weight=weight, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history, x, y, evaluate={"sample_weight": weight})


@case()
def metric_given_as_a_function(strategy):
    x, y = regression()

    def largest(y_true, y_pred):
        return keras.ops.max(keras.ops.abs(y_true - y_pred), axis=-1)

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[largest])
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


class LayerWithAMetric(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.mean = m.Mean(name="mean_of_inputs")

    def call(self, x):
        self.mean.update_state(x)
        return x


@case()
def metric_of_a_layer(strategy):
    x, y = regression()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), LayerWithAMetric(), keras.layers.Dense(1)])
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case(loss_falls=False)
def metrics_are_reset_each_epoch(strategy):
    x, y = regression()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
    history = model.fit(dataset(x, y), epochs=3, verbose=0)
    return {f"always/{name}": np.asarray(values) for name, values in history.history.items()}


class CustomMetric(m.Metric):
    def __init__(self):
        super().__init__(name="custom")
        self.state = self.add_variable((), "zeros", name="state")

    def result(self):
        return self.state


class LargestError(CustomMetric):
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign(keras.ops.maximum(self.state, keras.ops.max(keras.ops.abs(y_true - y_pred))))


class LastError(CustomMetric):
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign(keras.ops.mean(keras.ops.abs(y_true - y_pred)))


class MovingError(CustomMetric):
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign_add(0.1 * (keras.ops.mean(keras.ops.abs(y_true - y_pred)) - self.state))


class SummedError(CustomMetric):
    def __init__(self):
        super().__init__()
        self.count = m.Sum(name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign(self.state + keras.ops.sum(keras.ops.abs(y_true - y_pred)))
        self.state.assign_add(keras.ops.sum(keras.ops.square(y_true - y_pred)))
        self.count.update_state(keras.ops.ones_like(y_true))

    def result(self):
        return self.state / self.count.result()


def _train_with(metric, strategy, **options):
    x, y = regression()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[metric()], **options)
    return outcome(model, model.fit(dataset(x, y, batch=7), epochs=2, verbose=0), x, y)


@case()
def custom_metric_of_sums(strategy):
    return _train_with(SummedError, strategy)


@case()
def custom_metric_of_sums_run_eagerly(strategy):
    return _train_with(SummedError, strategy, run_eagerly=True)


_NO_SUM = dict.fromkeys(("mirrored", "multi", "ps"), "its state is not a sum over rows")


@case(errors=_NO_SUM)
def custom_metric_that_is_a_maximum(strategy):
    return _train_with(LargestError, strategy)


@case(errors=_NO_SUM)
def custom_metric_that_is_the_last_value(strategy):
    return _train_with(LastError, strategy)


@case(errors=_NO_SUM)
def custom_metric_that_is_a_moving_average(strategy):
    return _train_with(MovingError, strategy)
