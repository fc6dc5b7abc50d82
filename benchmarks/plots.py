"""One picture for each section. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scaling import Case
from benchmarks.summary import Row

__all__ = ["plot"]

_MOST_COLUMNS = 3


def plot(rows: Sequence[Row], cases: Sequence[Case], directory: Path) -> list[Path]:
    """Draws each section, and returns the files: `directory/SECTION.svg`.

    Args:
        rows: Whose medians are drawn, with their quartiles.
        cases: Of the section `scaling`.
        directory: Where the files go; it must exist.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "benchmarks"})  # text as text: small files
    measured = [row for row in rows if row.wall is not None]
    files = []
    for section in dict.fromkeys(row.section for row in measured):
        own = [row for row in measured if row.section == section]
        files.append(directory / f"{section}.svg")
        if section == "scaling":
            _draw_scaling(cases, files[-1])
        elif section == "all_reduce":
            _draw_sizes(own, files[-1])
        else:
            _draw_bars(own, files[-1])
    return files


def _draw_scaling(cases: Sequence[Case], file: Path) -> None:
    """A panel for each model: times over workers, measured and predicted, for weak and strong scaling."""
    from matplotlib import pyplot

    models = list(dict.fromkeys(case.model for case in cases))
    figure, axes = pyplot.subplots(1, max(1, len(models)), figsize=(4.6 * max(1, len(models)), 3.4), squeeze=False)
    for model, axis in zip(models, axes.flat, strict=False):
        for color, kind in (("C0", "weak"), ("C1", "strong")):
            own = [case for case in cases if case.model == model and kind in case.kinds]
            axis.plot(
                [c.workers for c in own], [c.measured_ms for c in own], "o-", color=color, label=f"{kind}, measured"
            )
            known = [(c.workers, c.predicted_ms) for c in own if c.predicted_ms is not None]
            axis.plot([n for n, _ in known], [ms for _, ms in known], "x--", color=color, label=f"{kind}, predicted")
        axis.set_ylim(bottom=0)
        axis.set_xticks(sorted({case.workers for case in cases}))
        axis.set_title(model, fontsize=9)
        axis.set_xlabel("workers")
        axis.set_ylabel("ms a step")
        axis.legend(fontsize=7)
    figure.tight_layout()
    _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def _draw_bars(rows: Sequence[Row], file: Path) -> None:
    """A panel for each case, a bar for each participant."""
    from matplotlib import pyplot

    cases = list(dict.fromkeys(row.case for row in rows))
    names = list(dict.fromkeys(row.participant for row in rows))
    columns = min(_MOST_COLUMNS, len(cases))
    lines = -(-len(cases) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(4.6 * columns, 2.4 * lines), squeeze=False)
    for axis in axes.flat[len(cases) :]:
        axis.remove()
    for case, axis in zip(cases, axes.flat, strict=False):
        for row in (row for row in rows if row.case == case):
            assert row.wall is not None
            error = [[row.wall.median - row.wall.lower], [row.wall.upper - row.wall.median]]
            color = f"C{names.index(row.participant) % 10}"
            axis.barh(row.participant, row.wall.median, xerr=error, color=color)
        axis.invert_yaxis()
        axis.set_title(case, fontsize=9)
        axis.set_xlabel("ms", fontsize=8)
        axis.tick_params(labelsize=7)
    figure.tight_layout()
    _save(figure, file)


def _draw_sizes(rows: Sequence[Row], file: Path) -> None:
    """A panel for each number of workers: times over sizes, both logarithmic."""
    from matplotlib import pyplot

    groups = list(dict.fromkeys(row.case.rsplit(", ", 1)[0] for row in rows))
    figure, axes = pyplot.subplots(1, len(groups), figsize=(6 * len(groups), 4), squeeze=False)
    for group, axis in zip(groups, axes.flat, strict=True):
        own = [row for row in rows if row.case.rsplit(", ", 1)[0] == group]
        sizes = list(dict.fromkeys(row.case.rsplit(", ", 1)[1] for row in own))
        for name in dict.fromkeys(row.participant for row in own):
            points = [(sizes.index(r.case.rsplit(", ", 1)[1]), r.wall) for r in own if r.participant == name]
            axis.plot([x for x, _ in points], [w.median for _, w in points if w], marker="o", label=name)
        axis.set_yscale("log")
        axis.set_xticks(range(len(sizes)), sizes, fontsize=7)
        axis.set_title(group, fontsize=9)
        axis.set_ylabel("ms")
        axis.legend(fontsize=7)
    figure.tight_layout()
    _save(figure, file)
