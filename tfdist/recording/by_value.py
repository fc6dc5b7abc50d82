"""Sends functions and classes of a script or notebook to a child process: by value, where it cannot import them.

What an importable module defines is sent by name, as pickle does. Functions and classes of `__main__`, lambdas and
local functions are sent as their code (`marshal`), with the globals and closures that they use. For child processes of
the same Python on the same machine, and nothing else: unpickling runs code.

What needs more than its attributes set (enums, dataclasses, slots, `functools.cache`, `tf.function`) is handled as
cloudpickle does (https://github.com/cloudpipe/cloudpickle, `cloudpickle.py`).
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import importlib
import io
import marshal
import pickle
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdist.errors import ArgumentError, describe_problem

__all__ = ["pack", "unpack"]

_NOT_SENT = frozenset({"__dict__", "__weakref__", "__module__", "__qualname__", "__slots__", "_abc_impl"})
_LOADS_A_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


def pack(value: Any) -> bytes:
    """Turns a value into bytes for `unpack`.

    Raises:
        ArgumentError: Something in it, or that its functions use, cannot be sent to another process.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as error:  # whatever an object raises that cannot be pickled
        raise ArgumentError(
            describe_problem(
                f"The function cannot be sent to the process that verifies: {error}",
                received=f"{value!r} (from the call)",
                expected="functions that use modules, plain values, arrays, and functions and classes made of them",
                fix="Make datasets, strategies and models inside the function, or put it into a module of its own.",
            )
        ) from error
    return file.getvalue()


def unpack(data: bytes) -> Any:
    """Turns the bytes that `pack` of this very Python made back into the value.

    Raises:
        ArgumentError: Something in it is only known by name, in a script or notebook that this process does not have.
    """
    try:
        return pickle.loads(data)
    except Exception as error:  # whatever making the objects raises
        raise ArgumentError(
            describe_problem(
                f"The function cannot be made again in the process that verifies: {error}",
                received=f"{type(error).__name__} (from an object that the function uses)",
                expected="functions that use modules, plain values, arrays, and functions and classes made of them",
                fix="Put the function, and what it uses, into a module of its own, and import it.",
            )
        ) from error


class _Pickler(pickle.Pickler):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._globals: dict[int, dict[str, Any]] = {}  # id of a module's globals -> those that are sent
        self._kept: list[Any] = []  # so that ids stay unique

    def reducer_override(self, obj: Any) -> Any:
        """How what pickle cannot send is made again."""
        if isinstance(obj, types.ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, types.FunctionType) and not _is_importable(obj):
            return self._reduce_function(obj)
        if isinstance(obj, type) and obj.__module__ != "builtins" and not _is_importable(obj):
            return _reduce_enum(obj) if issubclass(obj, enum.Enum) else _reduce_class(obj)
        if isinstance(obj, functools._lru_cache_wrapper) and not _is_importable(obj):
            return _make_cached, (obj.__wrapped__, obj.cache_parameters())
        if isinstance(obj, tf.types.experimental.PolymorphicFunction):
            return _make_tf_function, (obj.python_function, obj.input_signature)
        if isinstance(obj, types.MappingProxyType):
            return _make_proxy, (dict(obj),)
        if type(obj).__module__ == "dataclasses" and (name := _dataclasses_name(obj)):
            return name
        if isinstance(obj, types.CellType):
            return _make_cell, (), _contents(obj), None, None, _fill_cell
        if isinstance(obj, property):
            return property, (obj.fget, obj.fset, obj.fdel, obj.__doc__)
        if isinstance(obj, (classmethod, staticmethod)):
            return type(obj), (obj.__func__,)
        return NotImplemented

    def _reduce_function(self, function: types.FunctionType) -> Any:
        self._kept.append(function)
        module = {"__name__": function.__module__}
        sent_globals = self._globals.setdefault(id(function.__globals__), module)
        used = {n: function.__globals__[n] for n in _global_names(function.__code__) if n in function.__globals__}
        held = [value for cell in function.__closure__ or () for value in _contents(cell)]
        state = {
            "submodules": _submodules(function.__code__, [*used.values(), *held]),
            "globals": used,
            "registered": _registered(function),
            "attributes": {
                "__defaults__": function.__defaults__,
                "__kwdefaults__": function.__kwdefaults__,
                "__qualname__": function.__qualname__,
                "__doc__": function.__doc__,
                "__dict__": dict(function.__dict__),
            },
        }
        arguments = (marshal.dumps(function.__code__), sent_globals, function.__name__, function.__closure__)
        return _make_function, arguments, state, None, None, _fill_function


def _is_importable(obj: Any) -> bool:
    module = sys.modules.get(obj.__module__ or "")
    if module is None or obj.__module__ in ("__main__", "__mp_main__"):
        return False
    found: Any = module
    for name in obj.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is obj


def _global_names(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS_A_GLOBAL:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _submodules(code: types.CodeType, used: Iterable[Any]) -> list[str]:
    """What `import package.module` imported and the code uses: of it, its globals have only the package."""
    names = set(_attribute_names(code))
    packages = tuple(f"{module.__name__}." for module in used if isinstance(module, types.ModuleType))
    return [
        name
        for name in tuple(sys.modules)
        if name.startswith(packages) and names.issuperset(name.split(".")[1:]) and packages
    ]


def _attribute_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _attribute_names(constant)


def _registered(obj: Any) -> str:
    """The name under which Keras knows a function or class, if its own is another."""
    name = str(keras.saving.get_registered_name(obj))
    return name if name != obj.__name__ else ""


def _register(obj: Any, registered: str) -> None:
    package, _, name = registered.rpartition(">")
    if package and keras.saving.get_registered_object(registered) is not obj:
        keras.saving.register_keras_serializable(package, name)(obj)


def _dataclasses_name(obj: Any) -> str | None:
    """The name of one of the objects that `dataclasses` compares by identity, such as `MISSING`."""
    return next((name for name, value in vars(dataclasses).items() if value is obj), None)


def _make_proxy(mapping: dict[Any, Any]) -> types.MappingProxyType[Any, Any]:
    return types.MappingProxyType(mapping)


def _make_cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _make_tf_function(function: Any, input_signature: Any) -> Any:
    return tf.function(function, input_signature=input_signature)


def _make_function(code: bytes, module_globals: dict[str, Any], name: str, closure: Any) -> types.FunctionType:
    return types.FunctionType(marshal.loads(code), module_globals, name, None, closure)


def _fill_function(function: Any, state: dict[str, Any]) -> None:
    for name in state["submodules"]:
        importlib.import_module(name)
    function.__globals__.update(state["globals"])
    for name, value in state["attributes"].items():
        setattr(function, name, value)
    _register(function, state["registered"])


def _reduce_class(cls: type) -> Any:
    slots = _slots(cls)
    left_out = _NOT_SENT.union(slots or ())
    attributes = {name: value for name, value in vars(cls).items() if name not in left_out}
    arguments = (type(cls), cls.__name__, cls.__bases__, cls.__module__, slots)
    return _make_class, arguments, (attributes, _registered(cls)), None, None, _fill_class


def _slots(cls: type) -> tuple[str, ...] | None:
    slots = vars(cls).get("__slots__")
    return slots if slots is None else (slots,) if isinstance(slots, str) else tuple(slots)


def _make_class(kind: type, name: str, bases: tuple[type, ...], module: str, slots: tuple[str, ...] | None) -> Any:
    return kind(name, bases, {"__module__": module} | ({} if slots is None else {"__slots__": slots}))


def _fill_class(cls: type, state: tuple[dict[str, Any], str]) -> None:
    attributes, registered = state
    for name, value in attributes.items():
        setattr(cls, name, value)
    _register(cls, registered)


def _reduce_enum(cls: type[enum.Enum]) -> Any:
    members = {name: member.value for name, member in cls.__members__.items()}
    own = {name: value for name, value in vars(cls).items() if name not in members and not name.startswith("_")}
    initialize = vars(cls).get("__init__")
    given = {"__module__": cls.__module__} | ({} if initialize is None else {"__init__": initialize})
    arguments = (type(cls), cls.__name__, cls.__bases__, given | members)
    return _make_enum, arguments, (own, ""), None, None, _fill_class


def _make_enum(kind: Any, name: str, bases: Any, given: dict[str, Any]) -> Any:
    namespace = kind.__prepare__(name, bases)
    for attribute, value in given.items():
        namespace[attribute] = value
    return kind(name, bases, namespace)


def _make_cell() -> types.CellType:
    return types.CellType()


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # empty so far
        return ()


def _fill_cell(cell: Any, contents: tuple[Any, ...]) -> None:
    if contents:
        cell.cell_contents = contents[0]
