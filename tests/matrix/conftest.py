"""Runs each column of the table once per session, with the cases that were selected, and sums up."""

from __future__ import annotations

import pytest
from columns import Column
from table import all_cases, kind_of

_columns: dict[str, Column] = {}


@pytest.fixture(scope="session")
def column(request, tmp_path_factory):
    """Returns a function from a strategy's name to its column, which has been run."""
    selected: dict[str, set[str]] = {}
    for item in request.session.items:
        cell = getattr(item, "callspec", None)
        if cell is not None and {"strategy", "case"} <= set(cell.params):
            selected.setdefault(cell.params["strategy"], set()).add(cell.params["case"])
    selected["single"] = {name for names in selected.values() for name in names}
    table = all_cases()

    def run(name: str) -> Column:
        if name not in _columns:
            _columns[name] = Column(name, tmp_path_factory.mktemp("matrix") / name)
            _columns[name].run([case for case in table.values() if case.name in selected[name]])
        return _columns[name]

    return run


def pytest_terminal_summary(terminalreporter):
    """Prints the size of the table."""
    if not _columns:
        return
    table = all_cases()
    terminalreporter.section("feature x strategy")
    for name, column in _columns.items():
        kind = kind_of(name)
        run = [case for case in table.values() if column.result(case.name).values or column.result(case.name).errors]
        errors = sum(case.error_of(name) is not None for case in run)
        absent = {case.name: case.not_applicable[kind] for case in table.values() if kind in case.not_applicable}
        left_out = {case.name: case.left_out[kind] for case in table.values() if kind in case.left_out}
        terminalreporter.write_line(
            f"{name}: {len(run) - errors} compared, {errors} clear errors, {len(absent)} not applicable, "
            f"{len(left_out)} left out for a known fault; "
            f"{column.starts} starts, {column.seconds:.0f} s"
        )
        for case, why in (absent | left_out).items():
            terminalreporter.write_line(f"    {case}: {why}")
