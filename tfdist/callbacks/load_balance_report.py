"""What a `LoadBalanceMonitor` found, as text and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfdist.balancing import PARTS, Judgement, describe_judgement, format_table
from tfdist.errors import UnsupportedError, describe_problem

__all__ = ["LoadBalanceReport"]


@dataclass(frozen=True)
class LoadBalanceReport:
    """The newest window of steps.

    Attributes:
        judgement: Times, stragglers, and what each costs.
        names: Of the workers, by rank.
    """

    judgement: Judgement
    names: Sequence[str]

    def __str__(self) -> str:
        """The table, and what there is to say."""
        said = describe_judgement(self.judgement, self.names) or ["All workers take about as long."]
        return "\n".join([format_table(self.judgement, self.names), *said])

    __repr__ = __str__

    def plot(self, axes: Any = None) -> Any:
        """Draws a bar for each worker: where the time of a step goes, in milliseconds.

        Needs matplotlib, which `pip install "tfdist[plots]"` brings.

        Args:
            axes: Where to draw; a new figure's if None.

        Returns:
            The axes.

        Raises:
            UnsupportedError: matplotlib is not installed.
        """
        if axes is None:
            try:
                from matplotlib import pyplot
            except ImportError as error:
                raise UnsupportedError(
                    describe_problem(
                        "The report cannot be drawn",
                        received=f"{error} (from Python)",
                        expected="matplotlib",
                        fix='Install it: pip install "tfdist[plots]". print(report) needs nothing.',
                    )
                ) from error
            _, axes = pyplot.subplots(figsize=(7, 1 + 0.4 * len(self.names)), layout="constrained")
        window = self.judgement.window
        left = [0.0] * window.num_workers
        bars = {**window.parts, "waits for others": window.waiting, "exchange": [window.transfer] * window.num_workers}
        colors = dict(
            zip((*PARTS, "waits for others", "exchange"), ("C1", "C0", "C4", "C7", "0.85", "C2"), strict=True)
        )
        for name, seconds in bars.items():
            widths = [1000 * value for value in seconds]
            axes.barh(list(self.names), widths, left=left, label=name, color=colors[name])
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.set_xlabel("ms of a step")
        axes.legend()
        return axes
