"""A comparison in words, for a terminal, a notebook or the log of a CI job. Pure."""

from __future__ import annotations

from tfdist.verification.comparison import Comparison

__all__ = ["describe_comparison"]


def describe_comparison(comparison: Comparison) -> str:
    """Words a comparison: the verdict first, then each finding, then what could not be compared."""
    c = comparison
    scope = f"{c.steps} step{'s' if c.steps != 1 else ''} on {c.replicas} replicas"
    lines = []
    if c.findings:
        lines.append(f"tfdist verify: DIFFERS from one device, {scope}.")
        lines += [f"{number}. {finding}" for number, finding in enumerate(c.findings, 1)]
    else:
        verdict = "no difference found, though compared only roughly" if c.notes else "same as one device"
        lines.append(f"tfdist verify: {verdict}, {scope}; {c.compared} values compared.")
    if c.largest and not c.findings:
        lines.append(f"  Largest difference that counts as rounding or chance: {c.largest}")
    lines += [f"  Note: {note}" for note in c.notes]
    return "\n".join(lines)
