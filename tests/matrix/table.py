"""The table of cases: each is one small function that trains a model under any strategy and returns numbers.

A case is a row; the strategies are the columns. A new feature is a new function in one of the files in `cases/`:

    @case()
    def sequential(strategy):
        with strategy.scope():
            model = ...
        return outcome(model, model.fit(...), x, y)

Keys of what a case returns say where they are compared:

    always/...   with every strategy
    sync/...     with synchronous strategies; under parameter servers, whose workers are asynchronous, it may differ
    shape/...    nowhere, but every task must return them (weights that are not promised to be those of one device)

What every worker of a multi-worker job returns under `always/`, `sync/` and `shape/` must be equal bit for bit.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

#: The columns, with the processes that they take: (workers, ps).
STRATEGIES: dict[str, tuple[int, int]] = {
    "mirrored": (1, 0),
    "multi": (2, 0),
    "multi3": (3, 0),
    "elastic": (2, 0),
    "ps": (2, 1),
    "ps2": (2, 2),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        name: The name of its function.
        run: From a strategy to named arrays.
        tolerance: Relative and absolute.
        floatx: Keras's default dtype while it runs. float64 where an optimizer magnifies rounding (Adam's quotient).
        seed: Set before it runs; None leaves TensorFlow's seed as the factory set it.
        wide: Whether it also runs with 3 workers and with 2 parameter servers.
        expected: Right values, which every strategy and the single device must give.
        errors: Column kind (`mirrored`, `multi`, `elastic`, `ps`) -> pattern of the clear error that is right there.
        not_applicable: Column kind -> why there is nothing to compare.
        left_out: Column kind -> the known fault of tfdist for which the cell is left out; printed with the sum.
        loss_falls: Whether the last epoch's loss must lie below the first's, also under parameter servers.
    """

    name: str
    run: Callable[[Any], dict[str, Any]]
    tolerance: float = 1e-6
    floatx: str = "float32"
    seed: int | None = 11
    wide: bool = False
    expected: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    errors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    not_applicable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    loss_falls: bool = True

    def columns(self) -> list[str]:
        """The strategies under which it runs."""
        narrow = ["mirrored", "multi", "elastic", "ps"]
        absent = {*self.not_applicable, *self.left_out}
        absent |= {"elastic"} if "multi" in absent else set()
        return [c for c in (list(STRATEGIES) if self.wide else narrow) if kind_of(c) not in absent]

    def error_of(self, column: str) -> str | None:
        """The pattern of the clear error that is right in a column; `None` where the numbers are compared."""
        kind = kind_of(column)
        # An elastic job is one of several workers, unless a row says something else of it.
        return self.errors.get(kind, self.errors.get("multi") if kind == "elastic" else None)


def kind_of(column: str) -> str:
    """`multi3` and `ps2` are more of the same kind."""
    return column.rstrip("0123456789")


_cases: dict[str, Case] = {}


def case(**attributes: Any) -> Callable[[Callable[[Any], dict[str, Any]]], Callable[[Any], dict[str, Any]]]:
    """Adds a function to the table; see `Case` for the attributes."""

    def add(function: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
        add_case(function.__name__, function, **attributes)
        return function

    return add


def add_case(name: str, function: Callable[[Any], dict[str, Any]], **attributes: Any) -> None:
    """Adds a row under a name of its own."""
    assert name not in _cases, f"two cases are called {name}"
    _cases[name] = Case(name, function, **attributes)


def all_cases() -> dict[str, Case]:
    """The whole table, by name."""
    import cases

    for module in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"cases.{module.name}")
    return dict(_cases)
