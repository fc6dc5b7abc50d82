"""An override: one attribute of Keras that tfdist replaces, why, and for which versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

__all__ = ["Override"]


@dataclasses.dataclass(frozen=True)
class Override:
    """One replaced attribute.

    Attributes:
        owner: The class or module that has the attribute.
        name: The attribute.
        make: Given the original, returns the replacement. A replacement passes everything that does not belong to a
            strategy of tfdist's on to the original.
        answers: What stock Keras does wrong, and the upstream issue where there is one.
        verified_on: The Keras versions on which it was tried.
    """

    owner: Any
    name: str
    make: Callable[[Any], Any]
    answers: str
    verified_on: str = "Keras 3.8 - 3.15, TensorFlow 2.18 - 2.21"

    @property
    def label(self) -> str:
        """`Owner.name`, unique among the overrides."""
        return f"{self.owner.__name__.removeprefix('keras.src.')}.{self.name}"
