"""Sends functions and classes of a script or notebook to a child process: by value, where it cannot import them.

What an importable module defines is sent by name, as pickle does. Functions and classes of `__main__`, lambdas and
local functions are sent as their code (`marshal`), with the globals and closures that they use. For child processes of
the same Python on the same machine, and nothing else: unpickling runs code.
"""

from __future__ import annotations

import dis
import importlib
import io
import marshal
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

from tfdist.errors import ArgumentError, describe_problem

__all__ = ["pack", "unpack"]

_NOT_SENT = frozenset({"__dict__", "__weakref__", "__module__", "__qualname__", "_abc_impl"})


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
    """Turns the bytes that `pack` of this very Python made back into the value."""
    return pickle.loads(data)


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
            return _reduce_class(obj)
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
        state = {
            "globals": used,
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
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _make_function(code: bytes, module_globals: dict[str, Any], name: str, closure: Any) -> types.FunctionType:
    return types.FunctionType(marshal.loads(code), module_globals, name, None, closure)


def _fill_function(function: Any, state: dict[str, Any]) -> None:
    function.__globals__.update(state["globals"])
    for name, value in state["attributes"].items():
        setattr(function, name, value)


def _reduce_class(cls: type) -> Any:
    attributes = {name: value for name, value in vars(cls).items() if name not in _NOT_SENT}
    return _make_class, (type(cls), cls.__name__, cls.__bases__, cls.__module__), attributes, None, None, _fill_class


def _make_class(kind: type, name: str, bases: tuple[type, ...], module: str) -> Any:
    return kind(name, bases, {"__module__": module})


def _fill_class(cls: type, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(cls, name, value)


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
