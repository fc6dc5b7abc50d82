"""How fit goes: steps, callbacks, saving."""

from __future__ import annotations

import os

import keras
import numpy as np
from table import add_case, case

from cases.building import (
    BATCH,
    as_arrays,
    case_directory,
    compiled,
    dataset,
    fixed_weights,
    is_asynchronous,
    logs_of,
    outcome,
    regression,
    state_of,
    worker_position,
)


def _steps_per_execution(rows):
    def run(strategy):
        x, y = regression(rows)
        model = compiled(strategy, steps_per_execution=3)
        history = model.fit(dataset(x, y, batch=4), epochs=2, verbose=0)
        return outcome(model, history, x, y, evaluate={"batch_size": 4}, predict={"batch_size": 4})

    return run


add_case("steps_per_execution_that_does_not_divide", _steps_per_execution(18), wide=True)
add_case("steps_per_execution_that_divides", _steps_per_execution(24))


@case()
def steps_per_execution_above_the_number_of_steps(strategy):
    x, y = regression(13)
    model = compiled(strategy, steps_per_execution=10)
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def steps_per_execution_on_an_endless_dataset(strategy):
    x, y = regression()
    model = compiled(strategy, steps_per_execution=2)
    history = model.fit(dataset(x, y).repeat(), steps_per_epoch=4, epochs=2, verbose=0)
    return outcome(model, history, x, y)


@case()
def steps_per_execution_run_eagerly(strategy):
    x, y = regression()
    model = compiled(strategy, steps_per_execution=2, run_eagerly=True)
    return outcome(model, model.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def arguments_by_position(strategy):
    x, y = regression()
    model = compiled(strategy)
    seen = []
    see = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    history = model.fit(dataset(x, y), None, None, 2, 0, [see])
    assert seen == [0, 1]
    return outcome(model, history, x, y)


@case()
def initial_epoch(strategy):
    x, y = regression()
    model = compiled(strategy)
    history = model.fit(dataset(x, y), epochs=5, initial_epoch=3, verbose=0)
    assert history.epoch == [3, 4]
    return outcome(model, history, x, y)


class Recorder(keras.callbacks.Callback):
    """Writes down each hook, with the logs that it saw."""

    def __init__(self):
        super().__init__()
        self.hooks, self.values = [], []

    def _see(self, hook, index, logs):
        logs = dict(logs or {})
        self.hooks.append(f"{hook} {index} {sorted(logs)}")
        self.values.append([float(logs[name]) for name in sorted(logs)])

    def on_epoch_begin(self, epoch, logs=None):
        self._see("epoch begins", epoch, logs)

    def on_epoch_end(self, epoch, logs=None):
        self._see("epoch ends", epoch, logs)

    def on_train_batch_begin(self, batch, logs=None):
        self._see("train batch begins", batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self._see("train batch ends", batch, logs)

    def on_test_batch_end(self, batch, logs=None):
        self._see("test batch ends", batch, logs)

    def on_test_end(self, logs=None):
        self._see("test ends", "", logs)

    def on_predict_batch_end(self, batch, logs=None):
        self.hooks.append(f"predict batch {batch} ends, {sorted(logs)}")
        self.values.append([np.sum(logs["outputs"])])

    def on_train_end(self, logs=None):
        self._see("train ends", "", logs)


@case(wide=True)
def callbacks_with_batch_hooks(strategy):
    x, y = regression(30)
    model = compiled(strategy)
    seen = Recorder()
    model.fit(
        dataset(x[:21], y[:21]),
        validation_data=dataset(x[21:], y[21:]),
        epochs=2,
        verbose=0,
        callbacks=[seen],
    )
    found = {
        "always/hooks": np.array("\n".join(seen.hooks)),
        "sync/values": np.concatenate([np.asarray(v, "float64") for v in seen.values if v]),
    }
    fixed_weights(model)
    predicting = Recorder()
    model.predict(dataset(x), verbose=0, callbacks=[predicting])
    found["always/predict_hooks"] = np.array("\n".join(predicting.hooks))
    found["always/predict_values"] = np.concatenate(predicting.values)
    return found | state_of(model)


@case()
def callbacks_of_evaluate(strategy):
    x, y = regression(30)
    model = compiled(strategy)
    seen = Recorder()
    model.evaluate(dataset(x, y), verbose=0, callbacks=[seen])
    return {"always/hooks": np.array("\n".join(seen.hooks)), "always/final": np.asarray(seen.values[-1])}


@case()
def learning_rate_scheduler(strategy):
    x, y = regression()
    model = compiled(strategy)
    callback = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    history = model.fit(dataset(x, y), epochs=3, verbose=0, callbacks=[callback])
    rate = {"always/rate": keras.ops.convert_to_numpy(model.optimizer.learning_rate)}
    return outcome(model, history, x, y) | rate


@case(loss_falls=False, floatx="float64", tolerance=1e-12)  # the loss diverges, and rounding with it
def early_stopping(strategy):
    x, y = regression()
    model = compiled(strategy, lambda: keras.optimizers.SGD(0.9))
    callback = keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
    history = model.fit(dataset(x, y), validation_data=(x, y), epochs=20, verbose=0, callbacks=[callback])
    if not is_asynchronous(strategy):
        assert 1 < len(history.history["loss"]) < 20
    found = outcome(model, history, x, y)
    # Where asynchronous training stops is its own affair.
    return {
        name: v for name, v in found.items() if ("iterations" not in name and "rows" not in name) or "evaluate" in name
    }


@case()
def reduce_learning_rate_on_plateau(strategy):
    x, y = regression()
    model = compiled(strategy)
    callback = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=10.0)
    history = model.fit(dataset(x, y), epochs=4, verbose=0, callbacks=[callback])
    return outcome(model, history, x, y)


class StopAt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.model.stop_training = True


class StopOnLastWorker(keras.callbacks.Callback):
    """Stops training on one worker only, at the end of an epoch or of a batch."""

    def __init__(self, strategy, *, epoch=None, batch=None):
        super().__init__()
        index, number = worker_position(strategy)
        self.asks, self.epoch, self.batch = index == number - 1, epoch, batch

    def on_epoch_end(self, epoch, logs=None):
        if self.asks and epoch == self.epoch:
            self.model.stop_training = True

    def on_train_batch_end(self, batch, logs=None):
        if self.asks and batch == self.batch:
            self.model.stop_training = True


def _add_one_worker_stops(at):
    def run(strategy):
        x, y = regression()
        model = compiled(strategy)
        callbacks = [StopOnLastWorker(strategy, **at)]
        if worker_position(strategy)[0] < worker_position(strategy)[1] - 1 and "batch" in at:
            callbacks = []  # the workers need not have the same callbacks
        history = model.fit(dataset(x, y), epochs=4, callbacks=callbacks, verbose=0)
        return outcome(model, history, x, y)

    add_case(f"one_worker_stops_on_{next(iter(at))}", run, not_applicable={"ps": "one coordinator runs the callbacks"})


_add_one_worker_stops({"epoch": 1})
_add_one_worker_stops({"batch": 1})


@case(loss_falls=False)
def stop_training_set_on_a_batch(strategy):
    x, y = regression()
    model = compiled(strategy)
    return outcome(model, model.fit(dataset(x, y), epochs=5, verbose=0, callbacks=[StopAt()]), x, y)


@case(loss_falls=False)
def weights_set_by_a_callback(strategy):
    x, y = regression()
    model = compiled(strategy)
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: fixed_weights(model, seed=epoch))
    return outcome(model, model.fit(dataset(x, y), epochs=3, verbose=0, callbacks=[callback]), x, y)


def _files():
    return np.array(" ".join(sorted(path.name for path in case_directory().rglob("*") if path.is_file())))


@case()
def saved_as_keras(strategy):
    """Every worker saves; there is one file afterwards, which every one can load, also outside of the strategy."""
    x, y = regression()
    model = compiled(strategy)
    model.fit(dataset(x, y), epochs=1, verbose=0)
    fixed_weights(model)
    path = case_directory() / "model.keras"
    model.save(path)
    found = {"always/files": _files()}
    found |= as_arrays("always/loaded", keras.models.load_model(path, compile=False).predict(x, verbose=0))
    return found


@case()
def saved_as_keras_and_trained_on(strategy):
    """A model that is loaded in the scope goes on where the saved one was, its optimizer's momentum included."""
    x, y = regression()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        fixed_weights(model)
        model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "mse", metrics=["mae"])
    model.fit(dataset(x, y), epochs=1, verbose=0)
    path = case_directory() / "model.keras"
    model.save(path)
    with strategy.scope():
        loaded = keras.models.load_model(path)
    found = {f"sync/loaded/{i}": w for i, w in enumerate(loaded.get_weights())}
    found["always/loaded_iterations"] = int(loaded.optimizer.iterations.numpy())
    for before, after in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    return found | outcome(loaded, loaded.fit(dataset(x, y), epochs=2, verbose=0), x, y)


@case()
def saved_weights(strategy):
    x, y = regression()
    model = compiled(strategy)
    model.fit(dataset(x, y), epochs=1, verbose=0)
    fixed_weights(model)
    path = case_directory() / "weights.weights.h5"
    model.save_weights(path)
    found = {"always/files": _files()}
    fixed_weights(model, seed=99)
    model.load_weights(path)
    found |= {f"always/weights/{i}": w for i, w in enumerate(model.get_weights())}
    return found | as_arrays("always/predict", model.predict(x, verbose=0))


@case()
def saved_each_epoch_by_model_checkpoint(strategy):
    x, y = regression()
    model = compiled(strategy)
    callback = keras.callbacks.ModelCheckpoint(str(case_directory() / "{epoch}.weights.h5"), save_weights_only=True)
    history = model.fit(dataset(x, y), epochs=2, verbose=0, callbacks=[callback])
    return outcome(model, history, x, y) | {"always/files": _files()}


@case()
def saved_in_the_older_format(strategy):
    x, _y = regression()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        fixed_weights(model)
    path = case_directory() / "model.h5"
    model.save(path)
    found = {"always/files": _files()}
    return found | as_arrays("always/loaded", keras.models.load_model(path, compile=False).predict(x, verbose=0))


@case()
def exported(strategy):
    """A SavedModel for serving."""
    import tensorflow as tf

    x, y = regression()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        fixed_weights(model)
        model.compile("sgd", "mse")
    model.fit(dataset(x, y), verbose=0)
    fixed_weights(model)
    path = case_directory() / f"exported-{os.getpid()}"  # unlike save, every worker writes what it exports
    model.export(path, verbose=False)
    loaded = tf.saved_model.load(str(path))
    return as_arrays("always/served", loaded.serve(x))


@case()
def weights_read_and_written(strategy):
    model = compiled(strategy)
    before = model.get_weights()
    model.set_weights([w + 1 for w in before])
    model.layers[0].kernel.assign_add(np.ones((4, 5), "float32"))
    model.layers[0].bias.assign(np.full(5, 2.0, "float32"))
    return {f"always/{i}": w for i, w in enumerate(model.get_weights())}


@case()
def verbose(strategy):
    """What is printed is not looked at here, only that it does not break."""
    x, y = regression()
    model = compiled(strategy)
    history = model.fit(dataset(x, y), epochs=2, verbose=2)
    model.evaluate(x, y, batch_size=BATCH)
    model.predict(x, batch_size=BATCH)
    found = logs_of(history)
    model.fit(dataset(x, y))
    return found
