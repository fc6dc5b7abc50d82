"""The states of callbacks: of Keras's own that have one, and of any with `get_state` and `set_state`.

`get_state()` returns JSON values, NumPy arrays and tensors, nested in dictionaries, lists and tuples (which come back
as lists); `set_state(state)` gets that again, arrays as NumPy arrays, after every `on_train_begin`, and once more after
every `on_epoch_begin`.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from tfdist.errors import ArgumentError, describe_problem
from tfdist.keras_compat.private_names import CALLBACK_ATTRIBUTES

__all__ = ["capture_callback_states", "keep_csv_rows", "restore_callback_states"]

_TENSOR = "tfdist:tensor"


def _named(callbacks: Iterable[Any]) -> dict[str, Any]:
    """Callbacks that may have a state, by class and number: the order of different ones may change."""
    count: collections.Counter[str] = collections.Counter()
    named = {}
    for callback in callbacks:
        kind = type(callback)
        name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
        named[f"{name}.{count[name]}"] = callback
        count[name] += 1
    return named


def _attributes(callback: Any) -> list[str]:
    return [
        name
        for kind, names in CALLBACK_ATTRIBUTES.items()
        if isinstance(callback, kind)
        for name in names
        if hasattr(callback, name)
    ]


def capture_callback_states(callbacks: Iterable[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the states as tensors, by name, and as JSON values.

    Raises:
        ArgumentError: A `get_state` returned something else.
    """
    tensors: dict[str, Any] = {}
    record: dict[str, Any] = {}
    for name, callback in _named(callbacks).items():
        if hasattr(callback, "get_state") and hasattr(callback, "set_state"):
            record[name] = {"state": _encode(callback.get_state(), name, tensors)}
            continue
        values = {attribute: getattr(callback, attribute) for attribute in _attributes(callback)}
        file: Any = getattr(callback, "csv_file", None) if isinstance(callback, keras.callbacks.CSVLogger) else None
        if hasattr(file, "truncate") and not file.closed:
            file.flush()
            values["csv_position"] = file.tell()
        if values:
            record[name] = _encode(values, name, tensors)
    return tensors, record


def restore_callback_states(callbacks: Iterable[Any], tensors: dict[str, Any], record: dict[str, Any]) -> None:
    """Puts back what `capture_callback_states` returned. A callback that is new keeps the state that it has."""
    named = _named(callbacks)
    for name in sorted(record.keys() - named.keys()):
        logging.info("The checkpoint has a state of %s, which is not among the callbacks now.", name)
    for name, callback in named.items():
        if name not in record:
            continue
        values = _decode(record[name], tensors)
        if hasattr(callback, "get_state") and hasattr(callback, "set_state"):
            if "state" in values:
                callback.set_state(values["state"])
            continue
        position = values.pop("csv_position", None)
        if position is not None and not callback.csv_file.closed:
            callback.csv_file.truncate(position)
            callback.append_header = position == 0
            callback.writer = None  # the next row makes it again, with the keys
        known = _attributes(callback)
        for attribute, value in values.items():
            if attribute in known:
                setattr(callback, attribute, value)


def keep_csv_rows(callbacks: Iterable[Any]) -> list[tuple[Any, bool]]:
    """Keeps CSVLoggers from emptying their files at the begin of a training that is resumed.

    Returns:
        The loggers, with the values of `append` to be set again.
    """
    loggers = [callback for callback in callbacks if isinstance(callback, keras.callbacks.CSVLogger)]
    before = [(logger, logger.append) for logger in loggers]
    for logger in loggers:
        logger.append = True
    return before


def _encode(value: Any, place: str, tensors: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        bad = next((key for key in value if not isinstance(key, str)), None)
        if bad is None:
            return {key: _encode(item, f"{place}/{key}", tensors) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        return [_encode(item, f"{place}/{number}", tensors) for number, item in enumerate(value)]
    elif value is None or isinstance(value, (bool, int, float, str)):
        return value
    elif isinstance(value, np.generic):
        return value.item()
    elif isinstance(value, (np.ndarray, tf.Tensor)):
        tensors[place] = np.array(value)
        return {_TENSOR: place}
    raise ArgumentError(
        describe_problem(
            "The state of a callback cannot be saved",
            received=f"{value!r} of type {type(value).__name__} at {place} (from the callback)",
            expected="JSON values, NumPy arrays and tensors, nested in lists and in dictionaries by string",
            fix="Return such values from get_state().",
        )
    )


def _decode(value: Any, tensors: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_TENSOR}:
            return np.array(tensors[value[_TENSOR]])
        return {key: _decode(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    return value
