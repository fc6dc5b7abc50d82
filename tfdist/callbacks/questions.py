"""At which steps the workers ask each other what only some of them know: a signal that came, or the time.

Every question is one small exchange, so they are asked about once a second and not at every step. All workers have to
ask at the same steps; so the chief names the next one with each answer.
"""

from __future__ import annotations

__all__ = ["PERIOD_S", "steps_to_next_question"]

#: How long a signal may wait for the next question, in seconds, where steps are shorter.
PERIOD_S = 1.0


def steps_to_next_question(*, steps_before: int, seconds_before: float, longest: int | None = None) -> int:
    """After how many steps to ask again.

    Args:
        steps_before: Steps since the question before this one, at least 1.
        seconds_before: How long they took.
        longest: A limit, as where something may be due sooner.

    Returns:
        About as many as are made in `PERIOD_S`; at most twice as many as before, since the first steps of a training
        say little of those to come.
    """
    fitting = PERIOD_S * steps_before / max(seconds_before, 1e-6)
    steps = max(1, min(int(fitting), 2 * steps_before))
    return steps if longest is None else max(1, min(steps, longest))
