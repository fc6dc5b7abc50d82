"""Every private name of Keras and TensorFlow that tfdist touches, in one place.

A name is private when its library's documentation does not promise it. Each is given with the versions on which it was
read and tried; `tests/tensorflow/test_private_names.py` fails on the day one of them goes. Nothing else in tfdist may
import from `keras.src`, `tensorflow.python` or an underscore attribute of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend as keras_backend  # Keras 3.8 - 3.15
from keras.src import tree  # Keras 3.8 - 3.15: keras.tree with `none_is_leaf`
from keras.src.backend.common import global_state  # Keras 3.8 - 3.15
from keras.src.backend.common.stateless_scope import in_stateless_scope  # Keras 3.8 - 3.15
from keras.src.backend.tensorflow import nn as tensorflow_nn  # Keras 3.8 - 3.15
from keras.src.backend.tensorflow import numpy as tensorflow_numpy  # Keras 3.8 - 3.15
from keras.src.backend.tensorflow import random as backend_random  # Keras 3.8 - 3.15
from keras.src.backend.tensorflow import trainer as tensorflow_trainer  # Keras 3.8 - 3.15
from keras.src.backend.tensorflow.core import Variable as TensorFlowVariable  # Keras 3.8 - 3.15
from keras.src.backend.tensorflow.optimizer import TFOptimizer  # Keras 3.8 - 3.15
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer  # Keras 3.8 - 3.15
from keras.src.legacy.saving import legacy_h5_format  # Keras 3.8 - 3.15
from keras.src.losses import loss as loss_module  # Keras 3.8 - 3.15
from keras.src.losses.loss import Loss  # Keras 3.8 - 3.15
from keras.src.metrics.reduction_metrics import Mean  # Keras 3.8 - 3.15
from keras.src.optimizers.base_optimizer import BaseOptimizer  # Keras 3.8 - 3.15
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer  # Keras 3.8 - 3.15
from keras.src.random.seed_generator import SeedGenerator, draw_seed  # Keras 3.8 - 3.15
from keras.src.saving import saving_lib  # Keras 3.8 - 3.15
from keras.src.trainers import data_adapters  # Keras 3.8 - 3.15
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics  # Keras 3.8 - 3.15
from keras.src.trainers.data_adapters import array_slicing  # Keras 3.8 - 3.15
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter  # Keras 3.8 - 3.15
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter  # Keras 3.8 - 3.15
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter  # Keras 3.8 - 3.15
from keras.src.trainers.epoch_iterator import EpochIterator  # Keras 3.8 - 3.15
from keras.src.trainers.trainer import Trainer  # Keras 3.8 - 3.15
from keras.src.utils.python_utils import pythonify_logs  # Keras 3.8 - 3.15
from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset  # TensorFlow 2.18 - 2.21
from tensorflow.python.distribute.collective_all_reduce_strategy import (  # TensorFlow 2.18 - 2.21
    CollectiveAllReduceExtended,
)
from tensorflow.python.distribute.sharded_variable import ShardedVariable  # TensorFlow 2.18 - 2.21
from tensorflow.python.eager import context as tf_context  # TensorFlow 2.18 - 2.21
from tensorflow.python.ops import stateful_random_ops  # TensorFlow 2.18 - 2.21

__all__ = [
    "ArrayDataAdapter",
    "BaseOptimizer",
    "CALLBACK_ATTRIBUTES",
    "CollectiveAllReduceExtended",
    "CompileLoss",
    "CompileMetrics",
    "EpochIterator",
    "Loss",
    "LossScaleOptimizer",
    "Mean",
    "PyDatasetAdapter",
    "SeedGenerator",
    "ShardedVariable",
    "TFOptimizer",
    "TensorFlowTrainer",
    "TensorFlowVariable",
    "Trainer",
    "array_slicing",
    "auto_shard_files",
    "backend_random",
    "bound_call",
    "compile_loss",
    "configure_coordination_service",
    "data_adapters",
    "deserialize_iterator",
    "draw_seed",
    "eager_random",
    "epoch_logs",
    "flat_layers",
    "get_key_value",
    "global_generator",
    "has_python_source",
    "in_stateless_scope",
    "initial_epoch",
    "is_ready",
    "keras_backend",
    "keras_global_seeds",
    "legacy_h5_format",
    "loss_module",
    "model_strategy",
    "nested_metrics",
    "optimizer_strategy",
    "own_metric_variables",
    "pythonify_logs",
    "saving_lib",
    "seed_generators",
    "serialize_iterator",
    "set_initial_epoch",
    "set_key_value",
    "set_variable_count",
    "stateful_operation",
    "tensorflow_nn",
    "tensorflow_numpy",
    "tensorflow_trainer",
    "trained_variables",
    "tree",
    "use_fresh_collective_keys",
    "variable_count",
    "variable_value",
]


#: Keras's callbacks that have a state, and the attributes that hold it, private ones included.
CALLBACK_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("wait", "stopped_epoch", "best", "best_weights", "best_epoch"),
    keras.callbacks.ReduceLROnPlateau: ("best", "wait", "cooldown_counter"),
    keras.callbacks.ModelCheckpoint: (
        "best",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
        "_current_epoch",
    ),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch", "_previous_epoch_iterations"),
    keras.callbacks.History: ("epoch", "history"),
    keras.callbacks.CSVLogger: ("keys",),
}


def variable_value(variable: Any) -> Any:
    """`KerasVariable._value`: the TensorFlow variable below a Keras variable, `None` before it is built."""
    return variable._value


def compile_loss(model: Any) -> Any | None:
    """`Trainer._compile_loss`: the losses given to `compile`."""
    return model._compile_loss


def nested_metrics(metric: Any) -> list[Any]:
    """`Metric._metrics`, and what `CompileMetrics` holds: the metrics that a metric is made of."""
    return list(metric.metrics if isinstance(metric, CompileMetrics) else metric._metrics)


def own_metric_variables(metric: Any) -> list[Any]:
    """`Metric._variables`: the variables of a metric without those of metrics in it."""
    return list(metric._variables)


def flat_layers(model: Any) -> list[Any]:
    """`Layer._flatten_layers`: a model and all layers in it."""
    return list(model._flatten_layers())


def seed_generators(layer: Any) -> list[Any]:
    """`Layer._seed_generators`: the seed generators that a layer itself holds."""
    return list(layer._seed_generators)


def trained_variables(optimizer: Any) -> list[Any]:
    """`BaseOptimizer._trainable_variables`: the variables for which an optimizer was built."""
    return list(optimizer._trainable_variables)


def model_strategy(model: Any) -> tf.distribute.Strategy | None:
    """`TensorFlowTrainer._distribute_strategy`: the strategy in whose scope a model was made, if any."""
    return model._distribute_strategy


def optimizer_strategy(optimizer: Any) -> tf.distribute.Strategy:
    """`TFOptimizer._distribution_strategy`: the strategy in whose scope an optimizer was made."""
    return optimizer._distribution_strategy


def initial_epoch(model: Any) -> int | None:
    """`Trainer._initial_epoch`: the epoch at which `fit` begins, if not at the one of its argument."""
    return model._initial_epoch


def set_initial_epoch(model: Any, epoch: int | None) -> None:
    """Sets `_initial_epoch`, which Keras's `fit` reads after the hooks `on_train_begin`."""
    model._initial_epoch = epoch


def epoch_logs(model: Any, logs: Any) -> dict[str, Any]:
    """`TensorFlowTrainer._get_metrics_result_or_logs`: the logs of an epoch, given those of its last step."""
    return dict(model._get_metrics_result_or_logs(logs))


def has_python_source(adapter: Any) -> bool:
    """Whether a data adapter of Keras reads a Python generator or a loader of the user's."""
    return not isinstance(adapter, (ArrayDataAdapter, PyDatasetAdapter, TFDatasetAdapter))


def serialize_iterator(iterator: tf.data.Iterator) -> tf.Tensor:
    """The state of a tf.data iterator (`OwnedIterator._iterator_resource`), a vector of dtype variant.

    The states of stateful operations in its functions, such as `tf.random.uniform` in a `map`, are not in it.

    Raises:
        tf.errors.OpError: Some part of the pipeline has no state that can be saved.
    """
    ignore = tf.data.experimental.ExternalStatePolicy.IGNORE.value
    return tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource, external_state_policy=ignore)


def stateful_operation(iterator: tf.data.Iterator) -> str | None:
    """The type of an operation in a pipeline that has a state outside of the iterator's; `None` where there is none.

    TensorFlow names it as `<type> is stateful` (tensorflow/core/data/dataset_utils.cc, `IsNodeStateful`).
    """
    fail = tf.data.experimental.ExternalStatePolicy.FAIL.value
    try:
        tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource, external_state_policy=fail)
    except tf.errors.OpError as error:
        found = re.search(r"(\w+) is stateful", error.message)
        return found[1] if found else None
    return None


def deserialize_iterator(iterator: tf.data.Iterator, state: tf.Tensor) -> None:
    """Puts an iterator into a state that `serialize_iterator` returned for one of an equal dataset."""
    tf.raw_ops.DeserializeIterator(resource_handle=iterator._iterator_resource, serialized=state)


def eager_random() -> Any | None:
    """`Context._rng`: Python's generator of the seeds of eager operations; `None` where no global seed was set."""
    return getattr(tf_context.context(), "_rng", None)


def global_generator() -> tf.random.Generator | None:
    """`stateful_random_ops.global_generator`: that of `tf.random.get_global_generator`, if it was ever asked for."""
    return stateful_random_ops.global_generator


def keras_global_seeds() -> SeedGenerator | None:
    """The generator of the seeds of `keras.random` functions that are given none, if it was ever used."""
    return global_state.get_global_attribute("global_seed_generator")


def auto_shard_files(dataset: tf.data.Dataset, num_workers: int, worker_index: int) -> tf.data.Dataset:
    """tf.data's rewrite that gives each worker its own files (policy FILE), else raises `tf.errors.OpError`."""
    return _AutoShardDataset(dataset, num_workers, worker_index)


def configure_coordination_service(leader: str, jobs: dict[str, int], register_timeout_s: float) -> bool:
    """Sets up TensorFlow's coordination service as `MultiWorkerMirroredStrategy` does, with a time limit of our own.

    `MultiWorkerMirroredStrategy` leaves a configuration that is already there alone
    (tensorflow/python/distribute/collective_all_reduce_strategy.py, `_initialize_multi_worker`).

    Returns:
        Whether it is configured, now or by an earlier strategy: not when TensorFlow's context was initialized without.
    """
    coordination_config_pb2 = tf_context.coordination_config_pb2  # it has moved between packages of TensorFlow
    context = tf_context.context()
    if context._context_handle is not None:
        return context.coordination_service is not None
    context.configure_coordination_service(
        service_type="standalone",
        service_leader=leader,
        cluster_register_timeout_in_ms=round(register_timeout_s * 1000),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name=name, num_tasks=count) for name, count in jobs.items()
        ],
    )
    return True


def bound_call(function: Any, argument: Any) -> Callable[[], Any]:
    """`ConcreteFunction._call_flat` with an argument and the function's captures: what remains of a call to be done.

    `function` is what `get_concrete_function` gives for one positional argument. Calling it works out and checks the
    argument's type anew (tensorflow/python/eager/polymorphic_function/concrete_function.py, `_call_impl`).
    """
    kind = function.function_type
    tensors = kind.unpack_inputs(kind.bind(argument))
    return lambda: function._call_flat(tensors, function.captured_inputs)


def variable_count(strategy: tf.distribute.Strategy) -> int:
    """`ParameterServerStrategyV2Extended._variable_count`: which parameter server gets the next variable."""
    return strategy.extended._variable_count


def set_variable_count(strategy: tf.distribute.Strategy, count: int) -> None:
    """Sets `_variable_count`."""
    strategy.extended._variable_count = count


def is_ready(remote_value: Any, timeout_s: float) -> bool:
    """Waits for the result of a scheduled function for at most `timeout_s` seconds; `get` waits without a limit.

    `RemoteValueImpl._status_available_event` (tensorflow/python/distribute/coordinator/cluster_coordinator.py).
    """
    return remote_value._status_available_event.wait(timeout_s)


def use_fresh_collective_keys(strategy_class: type[tf.distribute.Strategy]) -> None:
    """Keeps the collectives of the next strategy of a class apart from those of earlier ones of this process.

    All strategies count their collectives from `_collective_key_base`; two of them would take each other's
    (tensorflow/python/distribute/mirrored_strategy.py, collective_all_reduce_strategy.py; TensorFlow's own tests do
    the same). The classes count in ranges of their own.
    """
    start = 0 if strategy_class is tf.distribute.MultiWorkerMirroredStrategy else 500_000_000
    strategy_class._collective_key_base = max(strategy_class._collective_key_base, start) + 100_000


def set_key_value(key: str, value: str) -> None:
    """Publishes a value to all workers of a multi-worker job, through TensorFlow's coordination service."""
    tf_context.context().set_config_key_value(key, value)


def get_key_value(key: str, timeout_s: float) -> str:
    """Waits for a value that another worker publishes.

    Raises:
        tf.errors.DeadlineExceededError: When it has not come within `timeout_s` seconds.
    """
    return tf_context.context().get_config_key_value(key, timeout_in_ms=max(1, round(timeout_s * 1000)))
