"""Every case of the table gives the numbers of one device, under every strategy, on every worker."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from table import STRATEGIES, all_cases, kind_of

pytestmark = pytest.mark.timeout(1800)  # the first cell of a column runs the whole column

#: `full` runs every cell (`make campaign`); `sample`, every case under one strategy or two, in a third of the time.
SIZE = os.environ.get("TFDIST_MATRIX", "sample")
assert SIZE in ("full", "sample"), SIZE
TABLE = all_cases()


def in_sample(number, case, strategy):
    """Each case is in `mirrored` or `multi`; wide ones, those with errors, and each tenth of the rest in `ps`, too."""
    if strategy == "ps":
        return bool(case.wide or case.errors or number % 10 == 0)
    others = [column for column in ("mirrored", "multi") if column in case.columns()]
    return bool(others) and strategy == others[number % len(others)]


CELLS = [
    (strategy, case.name)
    for number, case in enumerate(TABLE.values())
    for strategy in case.columns()
    if SIZE == "full" or in_sample(number, case, strategy)
]
CELLS.sort(key=lambda cell: cell[0])


def compare(name, got, right, tolerance):
    if right.dtype.kind in "US":
        assert got == right, f"{name}:\n{got}\ninstead of\n{right}"
    else:
        np.testing.assert_allclose(got, right, rtol=tolerance, atol=tolerance, err_msg=name)


def values_of(column, name):
    result = column.result(name)
    assert not result.errors, "\n".join(result.errors.values())
    assert set(result.values) == set(column.tasks())
    return result.values


@pytest.mark.parametrize(("strategy", "case"), CELLS)
def test_case(column, strategy, case):
    row, kind = TABLE[case], kind_of(strategy)
    pattern = row.error_of(strategy)
    if pattern is not None:
        result = column(strategy).result(case)
        assert set(result.errors) == set(column(strategy).tasks()), result
        for error in result.errors.values():
            assert re.search(r"\ntfdist\.errors\.\w+: ", error), error
            assert re.search(pattern, error), error
        return
    [right] = values_of(column("single"), case).values()
    tasks = values_of(column(strategy), case)
    first, *others = tasks.values()
    assert set(first) == set(right)
    compared = 0
    for name, value in right.items():
        if name.startswith("always/") or (name.startswith("sync/") and kind != "ps"):
            compare(name, first[name], value, row.tolerance)
            compared += 1
        for other in others:
            np.testing.assert_array_equal(first[name], other[name], err_msg=f"{name} differs between workers")
    assert compared or others
    for name, value in row.expected.items():
        compare(name, first[name], np.asarray(value), row.tolerance)
        compare(name, right[name], np.asarray(value), row.tolerance)
    loss = next((v for name, v in first.items() if name.endswith("history/loss")), None)
    if row.loss_falls and loss is not None and len(loss) > 1:
        assert loss[-1] < loss[0]


def test_every_column_is_used():
    used = {strategy for strategy, _ in CELLS}
    assert used == ({"mirrored", "multi", "ps"} if SIZE == "sample" else set(STRATEGIES))


def test_every_case_is_used():
    assert {case for _, case in CELLS} == set(TABLE)
