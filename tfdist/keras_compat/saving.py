"""Saving a model in a job of several workers: one of them writes, the others wait until the file is whole.

Every worker calls `model.save(path)`, as in a single process. The chief writes and announces it; the others wait for
the announcement, so that whoever goes on to load the file finds it. A worker that gives a path of its own (a scratch
path, as TensorFlow's tutorials do) writes there; a chief that saves alone waits for nobody.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any

import keras
import tensorflow as tf

from tfdist.errors import TfdistError, TimeLimitError, describe_problem
from tfdist.keras_compat.managed_strategies import cluster_of, elastic_group, is_chief, is_managed, worker_position
from tfdist.keras_compat.override import Override
from tfdist.keras_compat.private_names import (
    get_key_value,
    legacy_h5_format,
    model_strategy,
    saving_lib,
    set_key_value,
)

__all__ = ["OVERRIDES"]

SAVE_TIMEOUT_S = "TFDIST_SAVE_TIMEOUT_S"
_DEFAULT_SAVE_TIMEOUT_S = 600.0

_num_announced = 0


def _make_once_per_job(original: Any) -> Any:
    @functools.wraps(original)
    def save(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = model_strategy(model) if hasattr(model, "_distribute_strategy") else None
        is_path = isinstance(filepath, (str, os.PathLike))
        if not is_path or not is_managed(strategy) or worker_position(strategy)[1] == 1:
            return original(model, filepath, *args, **kwargs)
        path = os.path.abspath(os.fspath(filepath))
        if not is_chief(strategy):
            if _wait_for_chief(strategy, path):
                return None
            return original(model, filepath, *args, **kwargs)
        problem = ""
        try:
            return original(model, filepath, *args, **kwargs)
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            _announce(strategy, path, problem)

    return save


def _key(number: int) -> str:
    return f"tfdist/saved/{number}"


def _announce(strategy: tf.distribute.Strategy, path: str, problem: str) -> None:
    global _num_announced  # noqa: PLW0603 - counts the saves of this process, as its coordination service does
    key, value = _key(_num_announced), json.dumps({"path": path, "problem": problem})
    _num_announced += 1
    group = elastic_group(strategy)
    if group is None:
        set_key_value(key, value)
    else:
        group.client.set(key, value)


def _announced(strategy: tf.distribute.Strategy, number: int, limit_s: float) -> Any:
    """The announcement of a save; `None` if it has not come at the limit."""
    group = elastic_group(strategy)
    if group is not None:
        value = group.client.get(_key(number), limit_s)
        return None if value is None else json.loads(value)
    try:
        return json.loads(get_key_value(_key(number), limit_s))
    except (tf.errors.DeadlineExceededError, tf.errors.NotFoundError):
        return None


def _wait_for_chief(strategy: tf.distribute.Strategy, path: str) -> bool:
    """Waits for the chief's next save.

    Saves that the chief made alone, to other paths, are passed over if one to this path follows them.

    Returns:
        Whether it was to the same path. If not, this worker saves to a place of its own.
    """
    global _num_announced  # noqa: PLW0603
    limit_s = float(os.environ.get(SAVE_TIMEOUT_S, _DEFAULT_SAVE_TIMEOUT_S))
    announced = _announced(strategy, _num_announced, limit_s)
    if announced is None:
        group = elastic_group(strategy)
        task_name = cluster_of(strategy).task_name if group is None else group.client.process
        raise TimeLimitError(
            describe_problem(
                f"{task_name} waited for the chief to save the model",
                received=f"no save by the chief for {limit_s:g} seconds; {task_name} saves to {path}",
                expected=f"every worker to call save, the chief within {SAVE_TIMEOUT_S}={limit_s:g} seconds",
                fix="Call save on all workers, or on the chief alone.",
            )
        )
    _num_announced += 1
    passed_over = 0
    while announced["path"] != path:
        passed_over += 1
        announced = _announced(strategy, _num_announced + passed_over - 1, 0.001)
        if announced is None:
            return False
    _num_announced += passed_over
    if announced["problem"]:
        raise TfdistError(
            describe_problem(
                "The chief could not save the model",
                received=announced["problem"],
                expected=f"a model saved to {path}",
                fix="Mend what the chief reports.",
            )
        )
    return True


def _make_backup_save(original: Any) -> Any:
    @functools.wraps(original)
    def _save_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _writes(self.model):
            return self.model.save_weights(self._weights_path, overwrite=True)  # waits for the chief
        return original(self, *args, **kwargs)

    return _save_model


def _make_backup_end(original: Any) -> Any:
    @functools.wraps(original)
    def on_train_end(self: Any, logs: Any = None) -> None:
        if _writes(self.model):
            original(self, logs)

    return on_train_end


def _writes(model: Any) -> bool:
    strategy = model_strategy(model)
    return not is_managed(strategy) or is_chief(strategy)


OVERRIDES = (
    *(
        Override(owner, name, _make_once_per_job, "Every worker writes the same file.")
        for owner, name in (
            (saving_lib, "save_model"),
            (saving_lib, "save_weights_only"),
            (legacy_h5_format, "save_model_to_hdf5"),
        )
    ),
    Override(
        keras.callbacks.BackupAndRestore,
        "_save_model",
        _make_backup_save,
        "Every worker writes the same backup.",
    ),
    Override(
        keras.callbacks.BackupAndRestore,
        "on_train_end",
        _make_backup_end,
        "Every worker removes the same backup, and all but one fail.",
    ),
)
