"""Runs a column of the table: many cases in one start of a job, started anew after one that fails or hangs."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
from table import STRATEGIES, Case, kind_of

from tfdist.testing import LocalCluster

STALL_S = 120  # without a new case, start-up included
_PROGRAM = Path(__file__).resolve().parent / "run_cases.py"


@dataclasses.dataclass(frozen=True)
class Result:
    """What a case gave: named arrays by task, or why there are none."""

    values: dict[str, dict[str, np.ndarray]]
    errors: dict[str, str]


class Column:
    """The results of one strategy. `single` is the oracle."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.workers, self.ps = STRATEGIES.get(name, (1, 0))
        self.seconds = 0.0
        self.starts = 0

    def tasks(self) -> list[str]:
        """The names under which tasks write results."""
        if kind_of(self.name) in ("multi", "elastic"):
            return [f"worker-{i}" for i in range(self.workers)]
        return ["chief"] if self.ps else [self.name]

    def run(self, cases: list[Case]) -> None:
        """Runs cases, in an order that puts those that expect an error last."""
        began = time.monotonic()
        remaining = [case.name for case in sorted(cases, key=lambda case: case.error_of(self.name) is not None)]
        while remaining:
            self.starts += 1
            last = self._start(remaining)
            remaining = [name for name in remaining if not self._written(name) and name != last]
        self.seconds += time.monotonic() - began

    def _start(self, names: list[str]) -> str:
        """Starts the job once. Returns the last case that it began."""
        with LocalCluster(
            workers=self.workers,
            fewest_workers=self.workers if self.name == "elastic" else None,
            ps=self.ps,
            script=_PROGRAM,
            args=["--strategy", kind_of(self.name), "--cases", ",".join(names), "--out", str(self.directory)],
            time_limit_s=3600,
        ) as cluster:
            trainers = [n for n in cluster.task_names if n == "chief"] or list(cluster.task_names)
            seen, since = "", time.monotonic()

            def is_over() -> bool:
                nonlocal seen, since
                progress = "".join(cluster.stdout(name) for name in trainers)
                if progress != seen:
                    seen, since = progress, time.monotonic()
                codes = [cluster.returncode(name) for name in trainers]
                failed = any(code not in (None, 0) for code in codes)
                patience = 10 if failed else STALL_S  # a peer of a task that failed may wait for it
                return None not in codes or time.monotonic() - since > patience

            cluster.wait_for(is_over, "the end of the cases")
            begun = [line.removeprefix("case ") for line in seen.splitlines() if line.startswith("case ")]
            last = begun[-1] if begun else names[0]
            if "all cases done" not in seen and not self._written(last):
                (self.directory / f"{last}.job.error").write_text(
                    f"The job hung or died in {last}, or before it.\n{cluster.describe()}"
                )
        return last

    def _written(self, name: str) -> bool:
        return bool(list(self.directory.glob(f"{name}.*.npz")) or list(self.directory.glob(f"{name}.*.error")))

    def result(self, name: str) -> Result:
        """What a case gave."""
        values, errors = {}, {}
        for task in self.tasks():
            path = self.directory / f"{name}.{task}.npz"
            if path.exists():
                with np.load(path) as file:
                    values[task] = {key: file[key] for key in file.files}
        for path in self.directory.glob(f"{name}.*.error"):
            errors[path.name.removeprefix(f"{name}.").removesuffix(".error")] = path.read_text()
        return Result(values, errors)
