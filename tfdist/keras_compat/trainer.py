"""`compile`, `fit`, `evaluate` and `predict` of a model that belongs to a strategy of tfdist's.

Keras's own methods run. What is replaced is what they call: the epoch iterator, the three step functions, and the build
from a first batch.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import keras
import tensorflow as tf

from tfdist.cluster import ClusterConfig
from tfdist.communication.peers import missing_peers
from tfdist.errors import ArgumentError, PeerLostError, UnsupportedError, describe_problem
from tfdist.keras_compat import asynchronous_steps, elastic_steps, synchronous_steps
from tfdist.keras_compat.batch_shares import batch_shares, use_batch_shares
from tfdist.keras_compat.coordinator_input import CoordinatorEpochIterator
from tfdist.keras_compat.fit_watch import FitCall, claim_input, current_watcher, find_watcher, watched
from tfdist.keras_compat.gradient_norms import gradient_norms, use_gradient_norms
from tfdist.keras_compat.input_pipeline import SynchronousEpochIterator, WatchedStockEpochs
from tfdist.keras_compat.managed_strategies import (
    cluster_of,
    elastic_group,
    exchange_of,
    is_managed,
    is_parameter_server,
    num_local_replicas,
    worker_position,
)
from tfdist.keras_compat.monitored_step import MonitoredStep
from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import (
    TensorFlowTrainer,
    Trainer,
    keras_backend,
    model_strategy,
    pythonify_logs,
    tensorflow_trainer,
    tree,
    variable_value,
)
from tfdist.keras_compat.step_logs import StepLogs, agree_on_interval, logs_every
from tfdist.keras_compat.step_view import CopyView, entered
from tfdist.keras_compat.stopping import stop_together
from tfdist.keras_compat.worker_steps import count_updates
from tfdist.reporting.heartbeat import in_phase, leave_signal_to_program

__all__ = ["OVERRIDES", "build_from_spec"]


def _make_epoch_iterator(original: Any) -> Any:
    def make(*args: Any, distribute_strategy: Any = None, **kwargs: Any) -> Any:
        if not is_managed(distribute_strategy):
            watcher, _ = claim_input()
            if watcher is not None:
                return WatchedStockEpochs(watcher, *args, distribute_strategy=distribute_strategy, **kwargs)
            return original(*args, distribute_strategy=distribute_strategy, **kwargs)
        chosen = CoordinatorEpochIterator if is_parameter_server(distribute_strategy) else SynchronousEpochIterator
        return chosen(distribute_strategy, *args, **kwargs)

    return functools.wraps(original, updated=())(make)


def _make_compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = model_strategy(self)
        if strategy is None or not is_managed(strategy):
            return original(self, *args, **kwargs)
        with strategy.scope():  # optimizers and metrics given by name belong to the strategy
            return original(self, *args, **kwargs)

    return compile


_LOST_PEER = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)


def _make_entry(original: Any) -> Any:
    """Wraps `fit`, `evaluate` and `predict`: checks the scope, and lets one process of a job show progress."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def entry(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = model_strategy(self)
        if strategy is None and is_managed(tf.distribute.get_strategy()):
            _refuse_model_of_no_scope(self, original.__name__)
        call = signature.bind(self, *args, **kwargs)
        method = original.__name__
        given = _flat_callbacks(call.arguments.get("callbacks"))
        watcher = find_watcher(given) if method == "fit" else None
        fit_call = FitCall(self, call.arguments.get("epochs", 1), tuple(given))
        if not is_managed(strategy):
            with watched(watcher, fit_call, has_training_data=method == "fit"):
                return original(self, *args, **kwargs)
        if call.arguments.get("verbose", "auto") == "auto" and worker_position(strategy)[0] > 0:
            call.arguments["verbose"] = 0
        group = elastic_group(strategy)
        if method == "fit" and group is not None and group.is_newcomer and watcher is None:
            raise _cannot_be_taken_in(group.client.process)
        if method == "fit" and (worker_position(strategy)[1] > 1 or group is not None):
            call.arguments["callbacks"] = _with_stop_together(strategy, call.arguments.get("callbacks"))
        interval = None
        if method != "predict" and not is_parameter_server(strategy):
            given = _flat_callbacks(call.arguments.get("callbacks"))
            interval = agree_on_interval(strategy, method, given, call.arguments.get("verbose", "auto") != 0)
        leave_signal_to_program()
        if method == "fit":
            prepare = _prepare_asynchronous_steps if is_parameter_server(strategy) else _prepare_steps
            prepare(self, strategy, given)
        try:
            in_fit = watched(watcher, fit_call, has_training_data=method == "fit")
            with in_phase("other"), in_fit, logs_every(interval):
                return original(*call.args, **call.kwargs)
        except tf.errors.OpError as error:
            failure = exchange_of(strategy).failure
            if failure is not None:
                raise failure from error
            if cluster_of(strategy).is_local or not isinstance(error, _LOST_PEER):
                raise
            raise _peer_lost(cluster_of(strategy), method, error) from error

    return entry


def _prepare_steps(model: Any, strategy: tf.distribute.Strategy, callbacks: list[Any]) -> None:
    """Lets the steps of a model tell of their time, and ask for the workers' shares, where a callback needs it."""
    exchange = exchange_of(strategy)
    was_timed = exchange.is_timed
    exchange.timings.is_wanted = any(getattr(callback, "needs_timings", False) for callback in callbacks)
    may_share = any(getattr(callback, "rebalances", False) for callback in callbacks)
    will_share = may_share and num_local_replicas(strategy) == 1 and batch_shares(strategy) is None
    if will_share:
        use_batch_shares(strategy)
    shares = batch_shares(strategy)
    if shares is not None and not may_share:  # a call before this one has moved rows
        exchange.timings.shares = None
        shares.make_equal(worker_position(strategy)[1])
    needs_norms = any(getattr(callback, "needs_gradient_norms", False) for callback in callbacks)
    will_look = needs_norms and gradient_norms(strategy) is None
    if will_look:
        use_gradient_norms(strategy)
    if will_share or will_look or exchange.is_timed != was_timed:
        model.train_function = None  # it was traced otherwise


def _prepare_asynchronous_steps(model: Any, strategy: tf.distribute.Strategy, callbacks: list[Any]) -> None:
    if count_updates(strategy, is_wanted=any(getattr(callback, "needs_staleness", False) for callback in callbacks)):
        model.train_function = None  # it was traced otherwise


def _cannot_be_taken_in(process: str) -> UnsupportedError:
    return UnsupportedError(
        describe_problem(
            f"{process} came after training had begun, and cannot be given its state",
            received="callbacks without tfdist.callbacks.FaultTolerantCheckpoint (from the call of fit)",
            expected="that callback, through whose checkpoints a worker that comes later gets the state",
            fix="Add FaultTolerantCheckpoint to the callbacks of fit, with a directory that all workers see.",
        )
    )


def _flat_callbacks(callbacks: Any) -> list[Any]:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks.callbacks
    return tree.flatten(callbacks) if callbacks else []


def _with_stop_together(strategy: tf.distribute.Strategy, callbacks: Any) -> Any:
    given = _flat_callbacks(callbacks)
    added = stop_together(strategy, given)
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(added)
        return callbacks
    return [*given, added]


def _peer_lost(cluster: ClusterConfig, method: str, error: tf.errors.OpError) -> PeerLostError:
    return PeerLostError(
        describe_problem(
            f"{cluster.task_name} lost another task of the job during {method}()",
            received=f"{missing_peers(cluster)}; TensorFlow says: {_gist(error.message)}",
            expected="every task of the job to take part until the end",
            fix="Look at the log of the task that ended first; its error is the cause.",
        )
    )


def _gist(message: str) -> str:
    """The words of a TensorFlow error, without the graph trace that surrounds them."""
    noise = ("File ", "Graph execution error", "Detected at node", "{{node")
    lines = [line.strip() for line in message.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(noise))[:400]


def _refuse_model_of_no_scope(model: Any, method: str) -> None:
    raise ArgumentError(
        describe_problem(
            f"The model {model.name!r} was made outside of strategy.scope()",
            received=f"{method}() within the scope of a {type(tf.distribute.get_strategy()).__name__}",
            expected="a model whose layers, optimizer and metrics were made within the scope",
            fix="Build and compile the model inside `with strategy.scope():`.",
        )
    )


def _refuse_foreign_variables(model: Any) -> None:
    """Raises `ArgumentError` when a variable of the model was not made in the scope of its strategy."""
    strategy = model.distribute_strategy
    optimizer = [] if model.optimizer is None else model.optimizer.variables
    seen = [*model.variables, *model.metrics_variables, *optimizer]
    foreign = [
        v.path
        for v in seen
        if variable_value(v) is not None and not strategy.extended.variable_created_in_scope(variable_value(v))
    ]
    if foreign:
        shown = ", ".join(foreign[:5]) + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else "")
        raise ArgumentError(
            describe_problem(
                "Variables were made outside of strategy.scope()",
                received=f"{shown} (variables of the model {model.name!r}, its optimizer and metrics)",
                expected=f"every variable made in the scope of the model's {type(strategy).__name__}",
                fix="Make layers, optimizer objects and metric objects inside `with strategy.scope():`.",
            )
        )


def build_from_spec(model: Any, spec: Any) -> None:
    """Builds a compiled model, its metrics and its optimizer for batches of a spec, without running anything."""
    model._symbolic_build(data_batch=tree.map_structure(_symbolic, spec))


def _make_symbolic_build(original: Any) -> Any:
    @functools.wraps(original)
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = model_strategy(self)
        if strategy is None or not is_managed(strategy):
            if isinstance(iterator, WatchedStockEpochs):  # what is resumed has to be there before the first step
                build_from_spec(self, iterator.batch_spec)
            else:
                original(self, iterator=iterator, data_batch=data_batch)
            return
        spec = data_batch if iterator is None else iterator.batch_spec
        with strategy.scope():
            build_from_spec(self, spec)
        _refuse_foreign_variables(self)

    return _maybe_symbolic_build


def _symbolic(leaf: Any) -> Any:
    if getattr(leaf, "shape", None) is None:
        return None
    return keras_backend.KerasTensor(tuple(leaf.shape), keras_backend.standardize_dtype(leaf.dtype))


def _make_step_function(kind: str) -> Any:
    attribute, step = f"{kind}_function", f"{kind}_step"

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def make_function(self: Any, force: bool = False) -> Any:
            strategy = model_strategy(self)
            if not is_managed(strategy):
                return original(self, force)
            if getattr(self, attribute) is None or force:
                steps = _steps_under(strategy)
                if kind == "predict":
                    function = steps.make_predict_function(self)
                else:
                    function = steps.make_step_function(self, getattr(self, step))
                function = MonitoredStep(function, self.steps_per_execution if kind == "train" else 0)
                setattr(self, attribute, function)
            return getattr(self, attribute)

        return make_function

    return make


def _steps_under(strategy: tf.distribute.Strategy) -> Any:
    if is_parameter_server(strategy):
        return asynchronous_steps
    return synchronous_steps if elastic_group(strategy) is None else elastic_steps


def _make_metrics_result_or_logs(original: Any) -> Any:
    @functools.wraps(original)
    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        watcher = current_watcher()
        if not logs and watcher is not None and watcher.resumed_logs() is not None:
            return watcher.resumed_logs()
        if isinstance(logs, (asynchronous_steps.AsynchronousLogs, StepLogs)):
            with in_phase("step"):
                logs = logs.final()
        # The logs of a step are those of the global state already; a replica's own variables are not.
        return pythonify_logs(logs) if is_managed(model_strategy(self)) and logs else original(self, logs)

    return _get_metrics_result_or_logs


def _make_reset_metrics(original: Any) -> Any:
    @functools.wraps(original)
    def reset_metrics(self: Any) -> None:
        watcher = current_watcher()
        if watcher is not None:
            watcher.before_epoch()
        strategy = model_strategy(self)
        if strategy is None or not is_managed(strategy):
            original(self)
            return
        for function in (self.train_function, self.test_function):
            if hasattr(function, "reset"):  # not None, and not what a user's make_train_function made
                function.reset()
        if is_parameter_server(strategy):
            original(self)
        else:
            for index in range(num_local_replicas(strategy)):
                with entered(CopyView(strategy, index)):
                    original(self)

    return reset_metrics


OVERRIDES = (
    Override(
        TensorFlowTrainer,
        "reset_metrics",
        _make_reset_metrics,
        "It costs a collective for each variable.",
    ),
    Override(
        tensorflow_trainer,
        "TFEpochIterator",
        _make_epoch_iterator,
        "`experimental_distribute_dataset` loses and repeats rows, and cannot read under parameter servers.",
    ),
    Override(
        TensorFlowTrainer,
        "_maybe_symbolic_build",
        _make_symbolic_build,
        "`fit` raises at once under MultiWorkerMirroredStrategy (keras issue 20585).",
    ),
    Override(
        TensorFlowTrainer,
        "make_train_function",
        _make_step_function("train"),
        "Logs are averaged over replicas by one collective a metric, or raise.",
    ),
    Override(TensorFlowTrainer, "make_test_function", _make_step_function("test"), "The same in `evaluate`."),
    Override(
        TensorFlowTrainer,
        "make_predict_function",
        _make_step_function("predict"),
        "It cannot run under ParameterServerStrategy.",
    ),
    Override(
        TensorFlowTrainer,
        "_get_metrics_result_or_logs",
        _make_metrics_result_or_logs,
        "Epoch logs are read while asynchronous steps still run, or with a collective for each variable.",
    ),
    Override(
        Trainer,  # `compile_from_config` compares a model's `compile` with this one
        "compile",
        _make_compile,
        "Optimizers and metrics given by name are made outside of the scope when `compile` is called there.",
    ),
    *(
        Override(
            TensorFlowTrainer,
            name,
            _make_entry,
            "A model made outside of the scope is taken; a lost peer is a graph trace; every worker shows progress.",
        )
        for name in ("fit", "evaluate", "predict")
    ),
)
