"""The shares of the global batch that the workers get, so that none waits for another. Pure.

A worker that computes r rows in t seconds is given rows in the proportion of r / t. Where a step has a cost that does
not depend on its rows that is too little; the next window tells, and the shares go on from there until the times are
equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfdist.balancing.rule import Judgement, Rules
from tfdist.balancing.window import Window

__all__ = ["LEAST", "MOST", "next_shares"]

#: A worker's share is at least and at most so many times an equal one.
LEAST, MOST = 0.25, 4.0


def next_shares(shares: Sequence[float], judgement: Judgement, rules: Rules) -> list[float] | None:
    """What the workers are to get from now on.

    Args:
        shares: What they had in the window that was judged, by rank; their sum is 1.
        judgement: Of the window.
        rules: The tolerance is theirs.

    Returns:
        Shares whose sum is 1; None where nothing is to change.
    """
    window = judgement.window
    equal = 1 / len(shares)
    is_balanced = max(abs(share - equal) for share in shares) < 1e-9
    if is_balanced and not any(straggler.part == "compute" for straggler in judgement.stragglers):
        return None
    if not is_balanced and not _is_uneven(window, rules):
        return None
    speeds = [rows / seconds for rows, seconds in zip(window.rows, window.parts["compute"], strict=True) if seconds > 0]
    if len(speeds) < len(shares) or min(speeds) <= 0:
        return None  # a worker that had no rows tells nothing of its speed
    return _within_bounds([speed / sum(speeds) for speed in speeds], equal)


def _is_uneven(window: Window, rules: Rules) -> bool:
    pairs = zip(window.own, window.peers, window.noise, strict=True)
    return any(
        abs(own - peers) > max(rules.tolerance / 4 * peers, rules.num_errors * noise, rules.floor_s / 2)
        for own, peers, noise in pairs
    )


def _within_bounds(shares: list[float], equal: float) -> list[float]:
    """Moves shares that are too small or too large to the bound, and divides the rest as it was."""
    least, most = LEAST * equal, MOST * equal
    fixed: dict[int, float] = {}
    while True:
        rest = 1 - sum(fixed.values())
        total = sum(share for index, share in enumerate(shares) if index not in fixed)
        scaled = [fixed.get(index, share / total * rest) for index, share in enumerate(shares)]
        beyond = {index: min(max(share, least), most) for index, share in enumerate(scaled) if index not in fixed}
        beyond = {index: bound for index, bound in beyond.items() if abs(bound - scaled[index]) > 1e-12}
        if not beyond:
            return scaled
        fixed |= beyond
        if len(fixed) == len(shares):
            return [fixed[index] / sum(fixed.values()) for index in range(len(shares))]
