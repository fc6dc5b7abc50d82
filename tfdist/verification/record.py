"""What one run left behind: every number that the comparison needs, by step, kind, name and place. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfdist.errors import ArgumentError, describe_problem

__all__ = ["AGAIN", "INITIAL", "REPLICAS", "SINGLE", "Key", "ModelFacts", "RunRecord", "load_run", "load_runs"]

#: The runs of a verification, in their order: on replicas, on one device, and that once more (see `differences`).
REPLICAS, SINGLE, AGAIN = "replicas", "single", "again"

#: The "step" at which weights stand before the first one.
INITIAL = -1

_SEPARATOR = "|"
_FACTS = "facts"


class Key(NamedTuple):
    """Where a number belongs.

    Attributes:
        step: The step, from 0, or `INITIAL`.
        kind: `log` (loss and metrics after the step), `local_gradient` (a replica's own, as it hands it to the
            optimizer), `gradient` (what the exchange made of them), `weight` and `state` (a trainable and an other
            variable after the step), `seed` (drawn by a seed generator), `row` and `own_row` (digests of the rows that
            were trained on, and that the dataset gives to a single device).
        name: The path of the variable, the name of the metric, or empty.
        place: The replica; for what a worker knows, its first one.
    """

    step: int
    kind: str
    name: str
    place: int


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """What is known of the model besides its numbers.

    Attributes:
        replicas: Replicas of the run.
        optimizer: The class of the optimizer.
        clipping: How it clips, such as `clipnorm=1.0`; empty if it does not.
        train_step: The class that has a `train_step` of its own; empty if it is Keras's.
        batch_statistics: Names of the layers that normalise by the rows of their own replica.
        precision: Machine epsilon of the least precise number that a layer computes with.
        workers: Processes of the run, each of which reads the dataset.
        settings: The optimizer's settings, such as its learning rate, in JSON.
    """

    replicas: int = 1
    optimizer: str = ""
    clipping: str = ""
    train_step: str = ""
    batch_statistics: tuple[str, ...] = ()
    precision: float = 0.0
    workers: int = 1
    settings: dict[str, str] = dataclasses.field(default_factory=dict)


class RunRecord:
    """The numbers of one run, or of one worker's part of it.

    Args:
        facts: What is known of the model.
        values: The numbers.
    """

    def __init__(self, facts: ModelFacts, values: dict[Key, np.ndarray[Any, Any]] | None = None) -> None:
        self.facts = facts
        self.values = {} if values is None else values

    @property
    def steps(self) -> int:
        """Number of steps that were recorded."""
        return 1 + max((key.step for key in self.values if key.kind == "log"), default=INITIAL)

    def at(self, step: int, kind: str) -> dict[str, dict[int, np.ndarray[Any, Any]]]:
        """The numbers of a kind after a step: name -> place -> value, in the order in which they were recorded."""
        found: dict[str, dict[int, np.ndarray[Any, Any]]] = {}
        for key, value in self.values.items():
            if key.step == step and key.kind == kind:
                found.setdefault(key.name, {})[key.place] = value
        return {name: dict(sorted(places.items())) for name, places in found.items()}

    def one(self, step: int, kind: str) -> dict[str, np.ndarray[Any, Any]]:
        """The same, of the first place only."""
        return {name: next(iter(places.values())) for name, places in self.at(step, kind).items()}

    def save(self, path: Path) -> None:
        """Writes the record to a file; whoever finds the file finds all of it."""
        arrays = {_SEPARATOR.join((str(k.step), k.kind, str(k.place), k.name)): v for k, v in self.values.items()}
        arrays[_FACTS] = np.array(json.dumps(dataclasses.asdict(self.facts)))
        partial = path.with_suffix(".part")
        with partial.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> RunRecord:
        """Reads what `save` wrote."""
        values = {}
        facts: dict[str, Any] = {}
        with np.load(path, allow_pickle=False) as file:
            for text in file.files:
                if text == _FACTS:
                    facts = json.loads(str(file[text]))
                    continue
                step, kind, place, name = text.split(_SEPARATOR, 3)
                values[Key(int(step), kind, name, int(place))] = file[text]
        facts["batch_statistics"] = tuple(facts.get("batch_statistics", ()))
        return cls(ModelFacts(**facts), values)


def _merge_records(records: Iterable[RunRecord]) -> RunRecord:
    """Joins the parts that the workers of one run recorded, in the order of the workers."""
    parts = list(records)
    values: dict[Key, np.ndarray[Any, Any]] = {}
    for part in parts:
        values.update(part.values)
    return RunRecord(parts[0].facts, values)


def load_run(directory: Path, run: str) -> RunRecord:
    """Reads the record of a run.

    Raises:
        ArgumentError: The run left none: it did not call `fit` on a model of tfdist's.
    """
    files = sorted(directory.glob(f"{run}-*.npz"), key=lambda path: int(path.stem.rpartition("-")[2]))
    if not files:
        raise ArgumentError(
            describe_problem(
                "The script did not train with model.fit",
                received=f"no call of fit in the run {run!r}",
                expected="a call of model.fit on a compiled Keras model",
                fix="Verify a script that calls fit, or call tfdist.verify with a function that builds the model.",
            )
        )
    return _merge_records(RunRecord.load(path) for path in files)


def load_runs(directory: Path) -> tuple[RunRecord, RunRecord, RunRecord]:
    """Reads the records of the three runs.

    Raises:
        ArgumentError: As `load_run`.
    """
    return load_run(directory, REPLICAS), load_run(directory, SINGLE), load_run(directory, AGAIN)
