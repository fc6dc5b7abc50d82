"""A report of load balance as a picture."""

import sys

import pytest

from tfdist.balancing import COLUMNS, Judge, summarize_steps
from tfdist.callbacks.load_balance_report import LoadBalanceReport
from tfdist.errors import UnsupportedError


def report():
    told = {"input": (0.001, 0.001), "compute": (0.02, 0.03), "other": (0.001, 0.001), "exchange": (0.012, 0.002)}
    table = [[told.get(column, (0.0, 0.0))[rank] for column in COLUMNS] for rank in range(2)]
    return LoadBalanceReport(Judge().judge(summarize_steps([table] * 20, 0.25)), ["worker 0", "worker 1"])


class Axes:
    """What of matplotlib's axes is asked for."""

    def __init__(self):
        self.bars = {}
        self.is_inverted = False

    def barh(self, names, widths, *, left, label, color):
        self.bars[label] = [pytest.approx((a, w)) for a, w in zip(left, widths, strict=True)]

    def invert_yaxis(self):
        self.is_inverted = True

    def set_xlabel(self, text):
        assert "ms" in text

    def legend(self):
        pass


def test_bars_stand_one_behind_the_other():
    axes = report().plot(Axes())
    assert axes.bars["input"] == [(0, 1), (0, 1)]
    assert axes.bars["compute"] == [(1, 20), (1, 30)]
    assert axes.bars["waits for others"] == [(22, 10), (32, 0)]
    assert axes.bars["exchange"] == [(32, 2), (32, 2)]
    assert axes.is_inverted


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match=r'pip install "tfdist\[plots\]"'):
        report().plot()
