"""Puts the overrides in place, once, when the first factory makes a strategy, and takes them away again."""

from __future__ import annotations

import importlib.metadata
import re

from absl import logging

from tfdist.keras_compat import (
    losses,
    normalization,
    optimizers,
    partitioned_variables,
    randomness,
    saving,
    trainer,
    variable_creation,
    variables,
)
from tfdist.keras_compat.override import Override

__all__ = ["VERIFIED", "all_overrides", "install", "is_installed", "uninstall", "unverified_versions"]

#: Package -> (oldest, newest) `major.minor` of the supported window; the tests run on both ends of it.
VERIFIED = {"tensorflow": ((2, 18), (2, 21)), "keras": ((3, 8), (3, 15))}

_originals: dict[str, object] = {}


def all_overrides() -> tuple[Override, ...]:
    """Every override, in the order of installation."""
    return (
        *variable_creation.OVERRIDES,
        *variables.OVERRIDES,
        *partitioned_variables.OVERRIDES,
        *losses.OVERRIDES,
        *normalization.OVERRIDES,
        *randomness.OVERRIDES,
        *optimizers.OVERRIDES,
        *trainer.OVERRIDES,
        *saving.OVERRIDES,
    )


def is_installed() -> bool:
    """Whether the overrides are in place."""
    return bool(_originals)


def install(*, is_chief: bool = True) -> None:
    """Puts every override in place. Calling it again does nothing.

    Args:
        is_chief: Whether this process is the one of its job that warns of versions on which tfdist was not tried.
    """
    if is_installed():
        return
    for override in all_overrides():
        original = (
            override.owner.__dict__[override.name]
            if override.name in vars(override.owner)
            else getattr(override.owner, override.name)
        )
        _originals[override.label] = vars(override.owner).get(override.name)
        setattr(override.owner, override.name, override.make(original))
    if is_chief:
        for problem in unverified_versions():
            logging.warning("%s", problem)


def uninstall() -> None:
    """Restores stock Keras."""
    for override in reversed(all_overrides()):
        if override.label not in _originals:
            continue
        original = _originals.pop(override.label)
        if original is None:  # the attribute was inherited
            delattr(override.owner, override.name)
        else:
            setattr(override.owner, override.name, original)


def unverified_versions() -> list[str]:
    """Says which installed packages lie outside of the window on which tfdist was tried."""
    problems = []
    for package, (oldest, newest) in VERIFIED.items():
        installed = importlib.metadata.version(package)
        match = re.match(r"(\d+)\.(\d+)", installed)
        if match and not oldest <= (int(match[1]), int(match[2])) <= newest:
            window = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
            problems.append(
                f"tfdist was tried on {package} {window}; this is {package} {installed}. "
                "Check the first epochs with care, or install a version within the window."
            )
    return problems
