"""One picture for each section. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.summary import Row

__all__ = ["plot"]

_MOST_COLUMNS = 3


def plot(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draws the medians with their quartiles, and returns the files: `directory/SECTION.png`."""
    import matplotlib as mpl

    mpl.use("Agg")
    measured = [row for row in rows if row.wall is not None]
    files = []
    for section in dict.fromkeys(row.section for row in measured):
        own = [row for row in measured if row.section == section]
        files.append(directory / f"{section}.png")
        (_draw_sizes if section == "all_reduce" else _draw_bars)(own, files[-1])
    return files


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
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


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
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
