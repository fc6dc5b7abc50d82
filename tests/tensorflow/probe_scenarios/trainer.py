"""Probes: `fit`, `evaluate`, `predict`."""

import threading

import keras
import numpy as np
import tensorflow as tf

from probe_scenarios.registry import close, is_chief, leave_note, model_of, probe, rows, wait_for_note


@probe("TensorFlowTrainer._maybe_symbolic_build", on="multi", fails_with="")
def first_step(strategy):
    x, y = rows()
    model_of(strategy).fit(x, y, batch_size=4, verbose=0)


@probe("backend.tensorflow.trainer.TFEpochIterator", on="mirrored", fails_with="AddN")
def batches_that_do_not_divide(strategy):
    x, y = rows(6)
    model_of(strategy).fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(3), verbose=0)


@probe("TensorFlowTrainer.make_train_function", on="mirrored", fails_with="placeholder")
def several_steps_per_execution(strategy):
    x, y = rows()
    model_of(strategy, steps_per_execution=2).fit(x, y, batch_size=4, verbose=0)


class BatchLogs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_test_batch_end(self, batch, logs=None):
        self.seen.append(float(logs["root_mean_squared_error"]))


@probe(
    "TensorFlowTrainer.make_test_function",
    on="mirrored",
    fails_with="AssertionError.*Mismatched elements",
    passes_on=("3.8",),
)
def batch_logs_of_a_metric_that_is_not_a_mean(strategy):
    x, y = rows()
    with strategy.scope():
        metric = keras.metrics.RootMeanSquaredError()
    model, callback = model_of(strategy, metrics=[metric]), BatchLogs()
    model.evaluate(x, y + x[:, :1], batch_size=4, verbose=0, callbacks=[callback])
    close(callback.seen[0], np.sqrt(np.mean(x[:4, 0] ** 2)))


@probe("TensorFlowTrainer.make_predict_function", on="ps", fails_with="")
def predict_every_row(strategy):
    x, _ = rows(7)
    close(model_of(strategy).predict(x, batch_size=3, verbose=0), x.sum(axis=1, keepdims=True))


@probe("TensorFlowTrainer._get_metrics_result_or_logs", on="ps", stock=False, fails_with="")
def epoch_logs_have_every_step(strategy):
    x, y = rows(24)
    model = model_of(strategy, optimizer=lambda: keras.optimizers.SGD(0.0))
    history = model.fit(x, y + x[:, :1], batch_size=2, verbose=0)
    close(history.history["loss"][0], np.mean(x[:, 0] ** 2))


@probe(
    "TensorFlowTrainer.reset_metrics",
    on="multi",
    fails_with="AssertionError: a collective",
    stock=False,
    passes_on=("3.8",),
)
def reset_without_the_other_worker(strategy):
    model = model_of(strategy, metrics=["mae"])
    if is_chief(strategy):
        alone = threading.Thread(target=model.reset_metrics, daemon=True)
        alone.start()
        alone.join(5)
        was_alone = not alone.is_alive()
        leave_note("chief has reset")
        alone.join()
        assert was_alone, "a collective"
    else:
        wait_for_note("chief has reset")
        model.reset_metrics()


@probe("Trainer.compile", on="mirrored", fails_with="")
def compile_outside_of_the_scope(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x, y = rows()
    model.fit(x, y, batch_size=4, verbose=0)


def _refuses(strategy, method, *data):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    message = ""
    with strategy.scope():
        try:
            getattr(model, method)(*data, verbose=0)
        except Exception as error:
            message = str(error)
    assert "outside of strategy.scope()" in message, "no clear error"


@probe("TensorFlowTrainer.fit", on="mirrored", fails_with="AssertionError: no clear error")
def fit_of_a_model_outside_of_the_scope(strategy):
    _refuses(strategy, "fit", *rows())


@probe("TensorFlowTrainer.evaluate", on="mirrored", fails_with="AssertionError: no clear error")
def evaluate_of_a_model_outside_of_the_scope(strategy):
    _refuses(strategy, "evaluate", *rows())


@probe("TensorFlowTrainer.predict", on="mirrored", fails_with="AssertionError: no clear error")
def predict_of_a_model_outside_of_the_scope(strategy):
    _refuses(strategy, "predict", rows()[0])
