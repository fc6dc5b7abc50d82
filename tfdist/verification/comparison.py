"""Compares a run on several replicas with runs on one device, and says what differs first, and why. Pure."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from tfdist.errors import ArgumentError, describe_problem
from tfdist.verification.causes import (
    explain_gradients,
    explain_logs,
    explain_states,
    explain_weights,
    other_settings,
)
from tfdist.verification.differences import Array, Difference, Yardstick, largest
from tfdist.verification.findings import Cause, Finding
from tfdist.verification.record import INITIAL, RunRecord

__all__ = ["DEFAULT_TOLERANCE", "Comparison", "compare_runs"]

DEFAULT_TOLERANCE = 1e-5

_SHOWN = 5
_WORDS = {"log": "metric", "gradient": "gradient", "weight": "weight", "state": "variable"}
_BY_CHANCE = 0.1  # of the rows: how much more often a dataset that repeats rows itself may repeat them in another order
_ROUNDINGS = 10.0  # of the model's precision, by which a sum in another order may be off


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What comparing the runs came to.

    Attributes:
        findings: The differences, each with its likely cause, the first one first. None for a healthy model.
        notes: What could not be compared, and why.
        steps: Steps that were compared.
        replicas: Replicas of the run that was compared.
        compared: How many losses, metrics, gradients and weights were compared.
        largest: In words, the largest difference that counts as rounding.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    steps: int
    replicas: int
    compared: int
    largest: str = ""


def compare_runs(
    replicas: RunRecord, single: RunRecord, again: RunRecord, tolerance: float = DEFAULT_TOLERANCE
) -> Comparison:
    """Compares the runs step by step, up to the first step at which a value differs.

    After that step everything differs as a consequence. Rows and random seeds are looked at over all steps.

    Args:
        replicas: The run on several replicas.
        single: The run on one device, from the same weights, on the same rows.
        again: The same with other seeds and the rows of each batch in reverse order: what is rounding or chance.
        tolerance: Relative difference that counts as rounding whatever `again` says.

    Raises:
        ArgumentError: The runs cannot be compared: they trained different models, or no step.
    """
    _refuse_different_models(replicas, single, again)
    tolerance = max(tolerance, _ROUNDINGS * replicas.facts.precision)
    findings = [*_shared_rows(replicas, single), *_shared_seeds(replicas)]
    random: dict[str, None] = {}
    uncertain: dict[str, Array] = {}
    compared = 0
    worst: Difference | None = None
    steps = min(replicas.steps, single.steps)
    for step in range(steps):
        found, count, largest_here = _Step((replicas, single, again), step, tolerance, random, uncertain).compare()
        compared += count
        if largest_here is not None and (worst is None or _share(largest_here) > _share(worst)):
            worst = largest_here
        if found:
            findings += found
            break
    findings.sort(key=lambda finding: finding.step)
    words = "" if worst is None or worst.size == 0 else str(worst)
    return Comparison(tuple(findings), _notes(list(random)), steps, replicas.facts.replicas, compared, words)


def _notes(random: list[str]) -> tuple[str, ...]:
    if not random:
        return ()
    others = f" and {len(random) - _SHOWN} more" if len(random) > _SHOWN else ""
    return (
        "Random on one device, too, or dependent on the order of the rows, and so compared only roughly: "
        f"{', '.join(random[:_SHOWN])}{others}.",
    )


def _share(difference: Difference) -> float:
    return difference.size / difference.allowed if difference.allowed else 0.0


def _refuse_different_models(replicas: RunRecord, single: RunRecord, again: RunRecord) -> None:
    if min(replicas.steps, single.steps) == 0:
        raise ArgumentError(
            describe_problem(
                "No step was trained, so there is nothing to compare",
                received=f"{replicas.steps} steps on replicas, {single.steps} on one device",
                expected="a dataset of at least one batch",
                fix="Look at what the dataset yields.",
            )
        )
    kinds = ("weight", "state")
    for run in (single, again):
        sides = [
            {f"{name} {v.shape}" for kind in kinds for name, v in each.one(INITIAL, kind).items()}
            for each in (replicas, run)
        ]
        if sides[0] != sides[1]:
            _refuse_builds(f"variables on one side only: {', '.join(sorted(sides[0] ^ sides[1])[:6])}")
    if changed := other_settings(single.facts, again.facts):
        _refuse_builds(f"an optimizer with {changed}")


def _refuse_builds(received: str) -> None:
    raise ArgumentError(
        describe_problem(
            "The runs built different models",
            received=received,
            expected="the same model, with the same names and settings, whenever it is built",
            fix="Build the model from scratch in each call, without counters or random choices.",
        )
    )


def _shared_rows(replicas: RunRecord, single: RunRecord) -> list[Finding]:
    """Rows that several workers train on, beyond those that the dataset itself has twice.

    The replicas of one worker share out what it reads, so only workers can overlap.
    """
    by_place: dict[int, list[Array]] = {}
    steps_of: list[tuple[int, Array]] = []
    for step in range(replicas.steps):
        for place, rows in replicas.at(step, "row").get("", {}).items():
            by_place.setdefault(place, []).append(rows)
            steps_of.append((step, rows))
    own = [single.one(step, "own_row")[""] for step in range(_num_own(single))]
    if replicas.facts.workers < 2 or not own:
        return []
    seen = np.concatenate([rows for _, rows in steps_of])
    on_one_device = np.concatenate(own)[: len(seen)]
    surplus = _num_repeated(seen) - _num_repeated(on_one_device)
    by_chance = _BY_CHANCE * len(seen) if _num_repeated(on_one_device) else 0
    if surplus <= by_chance:
        return []
    joined = {place: np.concatenate(rows) for place, rows in by_place.items()}
    shared = {pair: len(np.intersect1d(joined[pair[0]], joined[pair[1]])) for pair in itertools.combinations(joined, 2)}
    (first, second), count = max(shared.items(), key=lambda item: item[1])
    common = np.intersect1d(joined[first], joined[second])
    step = min((step for step, rows in steps_of if np.isin(rows, common).any()), default=0)
    evidence = (
        f"{count} of the {len(joined[second])} rows that replica {second} trained on were also trained on by replica "
        f"{first}; one device that reads as many rows of this dataset meets {_num_repeated(on_one_device)} twice."
    )
    return [Finding(step, "rows", f"of replicas {first} and {second}", Cause.OVERLAPPING_SHARDS, evidence)]


def _num_own(single: RunRecord) -> int:
    return 1 + max((key.step for key in single.values if key.kind == "own_row"), default=-1)


def _num_repeated(rows: Array) -> int:
    return len(rows) - len(np.unique(rows))


def _shared_seeds(replicas: RunRecord) -> list[Finding]:
    for step in range(replicas.steps):
        names: list[str] = []
        equal: tuple[int, int] = (0, 0)
        for name, seeds in replicas.at(step, "seed").items():
            for a, b in itertools.combinations(seeds, 2):
                if np.array_equal(seeds[a], seeds[b]):
                    equal = equal if names else (a, b)
                    names.append(name)
                    break
        if names:
            evidence = f"replicas {equal[0]} and {equal[1]} both drew the seed {_words(replicas, step, names[0])}."
            return [Finding(step, "seed generator", names[0], Cause.SHARED_SEED, evidence, tuple(names[1:]))]
    return []


def _words(replicas: RunRecord, step: int, name: str) -> str:
    return str(replicas.one(step, "seed")[name].tolist())


class _Step:
    """The comparison after one step."""

    def __init__(
        self,
        runs: tuple[RunRecord, RunRecord, RunRecord],
        step: int,
        tolerance: float,
        random: dict[str, None],
        uncertain: dict[str, Array],
    ) -> None:
        self._runs = runs
        self._step, self._tolerance, self._random = step, tolerance, random
        self._compared = 0
        self._worst: Difference | None = None
        self._uncertain = uncertain  # of the steps so far, which this one goes on with
        self._slack = self._uncertain_change()
        # A step that is random is random in every value, though one may come out alike in two runs. The gradients tell:
        # a metric may also jump on rounding, as an accuracy does.
        self._chance = 0.0
        self._chance = self._yardstick("gradient" if runs[1].at(step, "gradient") else "log").noise

    def compare(self) -> tuple[list[Finding], int, Difference | None]:
        """Returns the findings, how many values were compared, and the largest difference."""
        replicas, step = self._runs[0], self._step
        apart = self._copies_that_differ("state")
        statistics = [
            Finding(step, "variable", d.name, Cause.UNSYNCHRONISED_STATISTICS, self._copies_words(d), _names(apart[1:]))
            for d in apart[:1]
        ]
        logs, gradients = self._differences("log"), self._differences("gradient")
        self._note_uncertain_gradients()
        states = [d for d in self._differences("state") if d.name not in {a.name for a in apart}]
        weights = self._differences("weight")
        diverged = self._copies_that_differ("weight")
        found: list[Finding] = []
        if gradients:
            cause, evidence = explain_gradients(
                self._runs[0], self._runs[1], step, self._yardstick("gradient"), gradients
            )
            found.append(Finding(step, "gradient", gradients[0].name, cause, evidence, _names(gradients[1:])))
        if diverged and not statistics:
            words = self._copies_words(diverged[0])
            found.append(Finding(step, "weight", diverged[0].name, Cause.NOT_EXCHANGED, words, _names(diverged[1:])))
        elif weights and not gradients:
            cause, evidence = explain_weights(replicas.facts, self._runs[1].facts, weights)
            found.append(Finding(step, "weight", weights[0].name, cause, evidence, _names(weights[1:])))
        if states:
            cause, evidence = explain_states(replicas.facts, states)
            found.append(Finding(step, "variable", states[0].name, cause, evidence, _names(states[1:])))
        if logs:
            cause, evidence = explain_logs(replicas.facts, logs, found)
            found.insert(0, Finding(step, "metric", logs[0].name, cause, evidence, _names(logs[1:])))
        return _one_of_each_cause([*statistics, *found]), self._compared, self._worst

    def _yardstick(self, kind: str) -> Yardstick:
        _, single, again = self._runs
        reference = single.one(INITIAL, kind) if kind in ("weight", "state") else None
        right, other = single.one(self._step, kind), again.one(self._step, kind)
        slack = self._slack if kind == "state" else 0.0
        return Yardstick(
            kind,
            right,
            other,
            self._tolerance,
            reference,
            chance=self._chance,
            uncertain=self._uncertain,
            slack=slack,
        )

    def _note_uncertain_gradients(self) -> None:
        yardstick = self._yardstick("gradient")
        runs = [run.one(self._step, "gradient") for run in self._runs]
        for name, right in runs[1].items():
            others = [run[name] for run in runs if name in run and run[name].shape == right.shape]
            part = yardstick.uncertain_part(name, others)
            before = self._uncertain.get(name)
            self._uncertain[name] = part if before is None else np.maximum(before, part)

    def _uncertain_change(self) -> float:
        """How far weights may lie apart after the steps before this one, of rounding."""
        before = [run.one(self._step - 1, "weight") for run in self._runs]
        start = self._runs[1].one(INITIAL, "weight")
        changes = [
            largest(self._uncertain[name] * np.abs(np.asarray(run[name], np.float64) - start[name]))
            for run in before
            for name in run
            if name in start and name in self._uncertain and self._uncertain[name].shape == start[name].shape
        ]
        return 2 * max(changes, default=0.0)

    def _differences(self, kind: str) -> list[Difference]:
        replicas = self._runs[0]
        yardstick = self._yardstick(kind)
        for name in yardstick.random:
            self._random[f"{_WORDS[kind]} {name}"] = None
        right = self._runs[1].one(self._step, kind)
        found = []
        for name, places in _reduced(replicas, self._step, kind).items():
            if name not in right:
                continue
            self._compared += 1
            worst = max((yardstick.measure(name, value) for value in places.values()), key=lambda d: d.size)
            if worst.matters:
                found.append(worst)
            elif self._worst is None or _share(worst) > _share(self._worst):
                self._worst = worst
        return found

    def _copies_that_differ(self, kind: str) -> list[Difference]:
        found = []
        for name, places in self._runs[0].at(self._step, kind).items():
            first, *others = places.values()
            allowed = self._tolerance * largest(first)
            yardstick = Yardstick(kind, {name: first}, {}, self._tolerance)
            for other in others:
                difference = dataclasses.replace(yardstick.measure(name, other), allowed=allowed)
                if difference.matters:
                    found.append(difference)
                    break
        return found

    def _copies_words(self, difference: Difference) -> str:
        return f"an element is {difference.right:.7g} on replica 0 and {difference.got:.7g} on another one."


def _reduced(replicas: RunRecord, step: int, kind: str) -> dict[str, dict[int, Array]]:
    """The numbers to compare; where no exchanged gradient was seen, the sum of the replicas' own."""
    found = replicas.at(step, kind)
    if kind == "gradient":
        for name, local in replicas.at(step, "local_gradient").items():
            found.setdefault(name, {0: np.asarray(np.sum(list(local.values()), axis=0, dtype=np.float64))})
    return found


def _names(differences: list[Difference]) -> tuple[str, ...]:
    return tuple(difference.name for difference in differences)


def _one_of_each_cause(findings: list[Finding]) -> list[Finding]:
    kept: dict[Cause, Finding] = {}
    for finding in findings:
        before = kept.get(finding.cause)
        if before is None:
            kept[finding.cause] = finding
        else:
            also = (*before.also, finding.name, *finding.also)
            kept[finding.cause] = dataclasses.replace(before, also=also)
    return list(kept.values())
