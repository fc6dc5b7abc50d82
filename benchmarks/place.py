"""What a measuring process knows of itself and its peers, and how they tell each other something."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EpochClock", "Place"]

_LIMIT_S = 60.0


@dataclass(frozen=True)
class Place:
    """Where a process stands.

    Attributes:
        task: Such as `worker 1`, `chief` or `ps 0`.
        rank: The number of the worker; 0 for the chief.
        workers: How many there are.
        directory: Common to all processes of the participant, and new.
    """

    task: str
    rank: int
    workers: int
    directory: Path

    def tell_all(self, key: str, text: str) -> list[str]:
        """Gives every worker the texts of all, by rank; so it is a barrier, too. Collective.

        Raises:
            TimeoutError: When a worker has told nothing for a minute; names it.
        """
        written = self.directory / f"{key}-{self.rank}.part"
        written.write_text(text)
        written.rename(self.directory / f"{key}-{self.rank}")
        texts = []
        end = time.monotonic() + _LIMIT_S
        for rank in range(self.workers):
            path = self.directory / f"{key}-{rank}"
            while not path.exists():
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.task} has waited {_LIMIT_S:g} s for {key!r} of worker {rank}")
                time.sleep(0.002)
            texts.append(path.read_text())
        return texts


class EpochClock:
    """Times epochs of equal work, and the processor time of this process in them; the first one warms up."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._stamps: list[tuple[float, float]] = []

    def epoch_ended(self) -> None:
        self._stamps.append((time.perf_counter(), time.process_time()))

    def series(self) -> dict[str, list[float]]:
        """Milliseconds a step, one value an epoch: `wall` and `cpu`."""
        pairs = list(zip(self._stamps, self._stamps[1:], strict=False))
        wall, cpu = ([(b[k] - a[k]) * 1000 / self._steps for a, b in pairs] for k in (0, 1))
        return {"wall": wall, "cpu": cpu}
