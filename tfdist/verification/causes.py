"""From numbers that differ to the likely cause. Pure.

Each cause of a wrong gradient predicts how the replicas' own gradients would give the right one. With m rows of n on a
replica, its own gradient l, and N replicas:

- losses not scaled: the right gradient is the sum of l m / n;
- means weighted by 1 / N whatever the rows: the sum of l m N / n;
- clipped on each replica: no sum gives it, but l has the norm (or the largest element) of the right, clipped one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tfdist.verification.differences import Array, Difference, Yardstick, largest
from tfdist.verification.findings import Cause, Finding
from tfdist.verification.record import ModelFacts, RunRecord

__all__ = ["explain_gradients", "explain_logs", "explain_states", "explain_weights", "other_settings"]

_SAME_NORM = 1e-4
#: Causes of wrong gradients that make the loss wrong, too.
_CHANGES_THE_LOSS = (Cause.LOSS, Cause.LOSS_SCALING, Cause.UNEVEN_BATCH, Cause.BATCH_STATISTICS)


def explain_gradients(
    replicas: RunRecord,
    single: RunRecord,
    step: int,
    yardstick: Yardstick,
    differences: Sequence[Difference],
) -> tuple[Cause, str]:
    """Explains gradients that differ from the single device's.

    Returns:
        The likely cause, and the evidence in one sentence.
    """
    right = single.one(step, "gradient")
    local = {name: grads for name, grads in replicas.at(step, "local_gradient").items() if name in right}
    rows = {place: len(digests) for place, digests in replicas.at(step, "row").get("", {}).items()}
    worst = f"the gradient of {differences[0]}"
    total, count = sum(rows.values()), replicas.facts.replicas
    complete = bool(local) and all(set(grads) == set(rows) for grads in local.values()) and len(rows) == count
    if not complete:
        return Cause.LOSS, f"{worst}."
    spread = ", ".join(str(n) for n in rows.values())
    if yardstick.all_close(_combine(local, lambda place: rows[place] / total)):
        return Cause.LOSS_SCALING, (
            f"{worst}; it is {_ratio(replicas, right, step):.4g} times the right one, and right when each replica's "
            f"gradient is weighted by its share of the rows ({spread})."
        )
    if len(set(rows.values())) > 1 and yardstick.all_close(_combine(local, lambda place: rows[place] * count / total)):
        return Cause.UNEVEN_BATCH, (
            f"{worst}; the replicas had {spread} rows, and it is right when each one's gradient is weighted by them."
        )
    if (clipped := _find_clipping(local, right)) is not None:
        return Cause.CLIPPED_BEFORE_SUM, f"{worst}; {clipped}"
    if replicas.facts.batch_statistics:
        return Cause.BATCH_STATISTICS, f"{worst}; the model has {', '.join(replicas.facts.batch_statistics[:3])}."
    ratio = _ratio(replicas, right, step)
    scaled = _combine(local, lambda _: 1 / ratio if ratio else 0.0)
    if yardstick.all_close(scaled):
        return Cause.LOSS_SCALING, f"{worst}; every gradient is {ratio:.4g} times the right one."
    return Cause.LOSS, f"{worst}."


def _combine(local: dict[str, dict[int, Array]], weight: Callable[[int], float]) -> dict[str, Array]:
    return {
        name: np.sum([np.asarray(g, np.float64) * weight(place) for place, g in grads.items()], axis=0)
        for name, grads in local.items()
    }


def _ratio(replicas: RunRecord, right: dict[str, Array], step: int) -> float:
    """By which factor all gradients together differ (least squares)."""
    local = replicas.at(step, "local_gradient")
    got = _combine({name: local[name] for name in right if name in local}, lambda _: 1.0)
    product = sum(float(np.sum(got[name] * right[name])) for name in got)
    square = sum(float(np.sum(np.square(right[name], dtype=np.float64))) for name in got)
    return product / square if square else 0.0


def _find_clipping(local: dict[str, dict[int, Array]], right: dict[str, Array]) -> str | None:
    measures: list[tuple[str, Callable[[Array], float]]] = [
        ("norm", lambda g: float(np.linalg.norm(np.asarray(g, np.float64)))),
        ("largest element", largest),
    ]
    places = sorted({place for grads in local.values() for place in grads})
    for word, measure in measures:
        for name, grads in local.items():
            limit = measure(right[name])
            sizes = [measure(g) for g in grads.values()]
            if limit > 0 and right[name].size > 1 and all(abs(s - limit) <= _SAME_NORM * limit for s in sizes):
                return (
                    f"the {word} of the gradient of {name} is {limit:.4g} on every replica by itself and on one device."
                )
    together = [_global_norm([local[name][p] for name in local]) for p in places]
    limit = _global_norm([right[name] for name in local])
    if limit > 0 and all(abs(s - limit) <= _SAME_NORM * limit for s in together):
        return f"the norm of all gradients together is {limit:.4g} on every replica by itself and on one device."
    return None


def _global_norm(gradients: Sequence[Array]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in gradients)))


def other_settings(facts: ModelFacts, right: ModelFacts) -> str:
    """In words, which settings of an optimizer differ; empty if none does."""
    names = [name for name, value in facts.settings.items() if right.settings.get(name, value) != value]
    return ", ".join(f"{name}={facts.settings[name]} instead of {right.settings[name]}" for name in names)


def explain_weights(facts: ModelFacts, right: ModelFacts, differences: Sequence[Difference]) -> tuple[Cause, str]:
    """Explains weights that differ though the gradients handed to the optimizer add up to the right ones."""
    worst = f"the weight {differences[0]}, though the sum of the replicas' gradients is right"
    if changed := other_settings(facts, right):
        return Cause.SETTINGS, f"{worst}; {facts.optimizer} has {changed}."
    if facts.clipping:
        return Cause.CLIPPED_BEFORE_SUM, f"{worst}; {facts.optimizer} has {facts.clipping}."
    return Cause.UPDATE, f"{worst}; the optimizer is {facts.optimizer}."


def explain_states(facts: ModelFacts, differences: Sequence[Difference]) -> tuple[Cause, str]:
    """Explains variables that layers assign, equal on all replicas but not those of the single device."""
    worst = differences[0]
    for layer in facts.batch_statistics:
        if f"{layer}/" in worst.name:
            return Cause.BATCH_STATISTICS, f"{worst}."
    return Cause.LAYER_STATE, f"{worst}, alike on all replicas."


def explain_logs(facts: ModelFacts, differences: Sequence[Difference], others: Sequence[Finding]) -> tuple[Cause, str]:
    """Explains losses and metrics that differ, by what else differs at the same step."""
    worst = f"{differences[0]}."
    for other in others:
        if other.what == "gradient" and other.cause in _CHANGES_THE_LOSS:
            return other.cause, f"{worst[:-1]}; {other.evidence}"
    if facts.batch_statistics:
        return Cause.BATCH_STATISTICS, f"{worst[:-1]}; the model has {', '.join(facts.batch_statistics[:3])}."
    return Cause.METRIC, worst
