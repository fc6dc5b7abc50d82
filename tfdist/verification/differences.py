"""When two numbers of two runs differ, and when that is only rounding or chance. Pure.

The single device runs twice, the second time with other seeds and with the rows of every batch in reverse order. What
differs between these two is rounding, as the model and its optimizer magnify it, or chance; the replicas may differ
from the single device by a multiple of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Difference", "Yardstick", "largest"]

Array = np.ndarray[Any, Any]

_NOISE_FACTOR = 10.0
_RANDOM_ABOVE = 0.01  # a value that varies by more than a hundredth from run to run cannot be compared
_ROUNDING = 1e-6  # of a weight, beside which its change is small


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
        right: Name -> the single device's values.
        again: The same of its second run.
        tolerance: Relative to the largest element.
        reference: Name -> values before the first step, for weights: their change is what is compared.
        chance: How much every value of this step may vary by chance, relative to its largest element.

    Attributes:
        random: Names of the values that vary from run to run, and so cannot be compared well.
        noise: By how much the one that varies most does, relative to its largest element; 0 if none is random.
    """

    def __init__(
        self,
        right: Mapping[str, Array],
        again: Mapping[str, Array],
        tolerance: float,
        reference: Mapping[str, Array] | None = None,
        *,
        chance: float = 0.0,
    ) -> None:
        self._right = right
        self._tolerance = tolerance
        scales: dict[str, float] = {}
        for name, value in right.items():
            start = None if reference is None else reference.get(name)
            scales[name] = largest(value if start is None else _minus(value, start))
        overall = max(scales.values(), default=0.0)
        self._allowed: dict[str, float] = {}
        self.random: list[str] = []
        self.noise = 0.0
        for name, value in right.items():
            noise = largest(_minus(again[name], value)) if name in again else 0.0
            scale = scales[name] + (0.01 * overall if reference is None else 0.0)
            rounding = 0.0 if reference is None else _ROUNDING * largest(value)
            self._allowed[name] = tolerance * scale + rounding + _NOISE_FACTOR * max(noise, chance * scale)
            if noise > max(_RANDOM_ABOVE, _NOISE_FACTOR * tolerance) * scale + rounding:
                self.random.append(name)
                self.noise = max(self.noise, noise / scale if scale else 0.0)

    def measure(self, name: str, got: Array) -> Difference:
        """Compares a value with the single device's."""
        right = np.asarray(self._right[name], np.float64)
        got = np.asarray(got, np.float64)
        if right.shape != got.shape:
            return Difference(name, np.inf, 0.0, float(right.size), float(got.size))
        off = np.abs(got - right)
        off = np.where(np.isnan(off), np.where(np.isnan(got) & np.isnan(right), 0.0, np.inf), off)
        off = np.where(got == right, 0.0, off)  # infinities
        if off.size == 0:
            return Difference(name, 0.0, 0.0, 0.0, 0.0)
        worst = np.unravel_index(int(np.argmax(off)), off.shape)
        return Difference(name, float(off[worst]), self._allowed[name], float(right[worst]), float(got[worst]))

    def all_close(self, got: Mapping[str, Array]) -> bool:
        """Whether every value is the single device's."""
        return not any(self.measure(name, got[name]).matters for name in self._right if name in got)


def _minus(a: Array, b: Array) -> Array:
    with np.errstate(invalid="ignore"):
        result: Array = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    return result


def largest(value: Array) -> float:
    """The largest absolute value of a finite element; 0 if there is none."""
    finite = np.abs(np.asarray(value, np.float64))
    finite = finite[np.isfinite(finite)]
    return float(finite.max()) if finite.size else 0.0
