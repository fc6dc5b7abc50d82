"""When two numbers of two runs differ, and when that is only rounding or chance. Pure.

The single device runs twice, the second time with other seeds and with the rows of every batch in reverse order. What
differs between these two is rounding, as the model and its optimizer magnify it, or chance; the replicas may differ
from the single device by a multiple of it.

Two runs may come out alike by chance. So what is known of rounding is allowed for without them: a gradient that cancels
out, as of a bias before a BatchNormalization, is rounding of the other gradients, and an optimizer such as Adam makes
full steps of it (`uncertain_part`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Difference", "Yardstick", "largest"]

Array = np.ndarray[Any, Any]

_NOISE_FACTOR = 10.0
_RANDOM_ABOVE = 0.01  # a value that varies by more than a hundredth from run to run cannot be compared
_ROUNDING = 1e-6  # of a weight, beside which its change is small
_SMALL_LOG = (
    0.01  # beside a loss of 1, a metric that is smaller need not be more exact; of a larger loss it says nothing
)
_CANCELLED = 0.1  # of the largest gradient: of what is rounding there, a gradient that cancels out may consist


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far a value lies from the right one.

    Attributes:
        name: Of the variable or metric.
        size: Largest absolute difference of an element.
        allowed: What would be rounding.
        right: The single device's value at that element.
        got: The value there.
    """

    name: str
    size: float
    allowed: float
    right: float
    got: float

    @property
    def matters(self) -> bool:
        """Whether it is more than rounding."""
        return not self.size <= self.allowed

    def __str__(self) -> str:
        return f"{self.name} is {self.got:.7g} instead of {self.right:.7g}"


class Yardstick:
    """What counts as equal for the values of one kind after one step.

    Args:
        kind: Of the values, as in `record.Key`.
        right: Name -> the single device's values.
        again: The same of its second run.
        tolerance: Relative to the largest element.
        reference: Name -> values before the first step, for weights: their change is what is compared.
        chance: How much every value of this step may vary by chance, relative to its largest element.
        uncertain: Name -> which part of the change of each element may be rounding (see `uncertain_part`).
        slack: By how much every value may differ whatever it is: what uncertain weights make of it.

    Attributes:
        random: Names of the values that vary from run to run, and so cannot be compared well.
        noise: By how much the one that varies most does, relative to its largest element.
    """

    def __init__(
        self,
        kind: str,
        right: Mapping[str, Array],
        again: Mapping[str, Array],
        tolerance: float,
        reference: Mapping[str, Array] | None = None,
        *,
        chance: float = 0.0,
        uncertain: Mapping[str, Array] | None = None,
        slack: float = 0.0,
    ) -> None:
        self._right = right
        self._reference = reference or {}
        self._uncertain = uncertain or {}
        scales: dict[str, float] = {}
        for name, value in right.items():
            start = None if reference is None else reference.get(name)
            scales[name] = largest(value if start is None else _minus(value, start))
        overall = max(scales.values(), default=0.0)
        floor = {"gradient": _CANCELLED * overall, "log": _SMALL_LOG * min(overall, 1.0)}.get(kind, 0.0)
        magnitudes: dict[str, float] = {}
        for name, value in right.items():
            magnitudes[_layer(name)] = max(magnitudes.get(_layer(name), 0.0), largest(value))
        self._allowed: dict[str, float] = {}
        self.random: list[str] = []
        self.noise = 0.0
        for name in right:
            noise = largest(self._beyond(name, again[name])) if name in again else 0.0
            scale = scales[name] + floor
            rounding = slack if reference is None else slack + _ROUNDING * magnitudes[_layer(name)]
            self._allowed[name] = tolerance * scale + rounding + _NOISE_FACTOR * max(noise, chance * scale)
            self.noise = max(self.noise, noise / scale if scale else 0.0)
            if noise > max(_RANDOM_ABOVE, _NOISE_FACTOR * tolerance) * scale + rounding:
                self.random.append(name)

    def _beyond(self, name: str, got: Array) -> Array:
        """By how much each element of a value is off, beyond what is uncertain of its change."""
        off = np.abs(_minus(got, self._right[name]))
        part, start = self._uncertain.get(name), self._reference.get(name)
        if part is None or start is None or part.shape != off.shape:
            return off
        change = largest(_minus(got, start)) + largest(_minus(self._right[name], start))
        off[off <= part * change] = 0.0
        return off

    def uncertain_part(self, name: str, runs: Sequence[Array]) -> Array:
        """Which part of each element of a gradient may be rounding, from 0 to 1, and so of the step that is made of it.

        Args:
            name: Of the gradient.
            runs: It, in all runs. An element that is zero in all of them is certain.
        """
        size = np.max([np.abs(np.asarray(g, np.float64)) for g in runs], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(size > 0, np.minimum(1.0, self._allowed[name] / size), 0.0)

    def measure(self, name: str, got: Array) -> Difference:
        """Compares a value with the single device's."""
        right = np.asarray(self._right[name], np.float64)
        got = np.asarray(got, np.float64)
        if right.shape != got.shape:
            return Difference(name, np.inf, 0.0, float(right.size), float(got.size))
        off = self._beyond(name, got)
        off = np.where(np.isnan(off), np.where(np.isnan(got) & np.isnan(right), 0.0, np.inf), off)
        off = np.where(got == right, 0.0, off)  # infinities
        if off.size == 0:
            return Difference(name, 0.0, 0.0, 0.0, 0.0)
        worst = np.unravel_index(int(np.argmax(off)), off.shape)
        return Difference(name, float(off[worst]), self._allowed[name], float(right[worst]), float(got[worst]))

    def all_close(self, got: Mapping[str, Array]) -> bool:
        """Whether every value is the single device's."""
        return not any(self.measure(name, got[name]).matters for name in self._right if name in got)


def _layer(name: str) -> str:
    return name.rpartition("/")[0]


def _minus(a: Array, b: Array) -> Array:
    with np.errstate(invalid="ignore"):
        result: Array = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    return result


def largest(value: Array) -> float:
    """The largest absolute value of a finite element; 0 if there is none."""
    finite = np.abs(np.asarray(value, np.float64))
    finite = finite[np.isfinite(finite)]
    return float(finite.max()) if finite.size else 0.0
