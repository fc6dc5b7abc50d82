"""A judgement in words, for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tfdist.balancing.rule import Judgement, Straggler
from tfdist.balancing.window import PARTS

__all__ = ["describe_judgement", "describe_straggler", "format_table"]

_HEADS = (*PARTS, "waits", "step", "rows")
_MOST_WORKERS = 16
_DOES = {"input": "waits for input", "link": "its bytes take"}
_MANY_ROWS = 1.1  # from this share on, more rows explain more time
_CURES = {
    "input": "It waits for its input: look at where it reads from, cache or prefetch, or let workers share the reading "
    "(tf.data's service).",
    "compute": "Look for another program on its machine, or a slower or hotter device.",
    "save": "It waits for checkpoints: save less often, or to a faster disk.",
    "other": "Its callbacks take long: look at what they do at each step.",
    "link": "Look at its network card and cable, and at what else uses its network.",
}


def format_table(judgement: Judgement, names: Sequence[str]) -> str:
    """A line for each worker, in milliseconds a step; of many workers, those that take longest.

    Args:
        judgement: Of a window.
        names: Of the workers, by rank.
    """
    window = judgement.window
    slowest_first = sorted(range(window.num_workers), key=lambda rank: -window.own[rank])
    order = sorted(slowest_first[:_MOST_WORKERS])
    width = max(len("worker"), *(len(names[rank]) for rank in order))
    slow = {straggler.worker for straggler in judgement.stragglers}
    lines = ["  ".join(["worker".ljust(width), *(head.rjust(8) for head in _HEADS)])]
    for rank in order:
        times = [window.parts[part][rank] for part in PARTS]
        cells = [f"{1000 * seconds:8.1f}" for seconds in (*times, window.waiting[rank], window.step)]
        mark = "  slow" if rank in slow else ""
        lines.append("  ".join([names[rank].ljust(width), *cells, f"{window.rows[rank]:8.1f}"]) + mark)
    if window.num_workers > _MOST_WORKERS:
        lines.append(f"({window.num_workers - _MOST_WORKERS} more workers, which take less)")
    lines.append(f"ms a step, medians of {window.num_steps} steps; the exchange itself takes {_ms(window.transfer)}")
    return "\n".join(lines)


def describe_judgement(judgement: Judgement, names: Sequence[str]) -> list[str]:
    """What there is to say, a sentence or two for each thing; empty when all is well."""
    window = judgement.window
    said = [describe_straggler(straggler, names) for straggler in judgement.stragglers]
    if judgement.is_input_bound:
        least_s = min(window.parts["input"])
        said.append(
            f"All workers wait for input, {_ms(least_s)} of {_ms(window.step)} or more: balancing cannot cure that. "
            "Use cache, prefetch and num_parallel_calls in the dataset, or several files and tf.data's FILE policy, so "
            "that no worker reads what others do."
        )
    if judgement.is_network_bound and not any(straggler.part == "link" for straggler in judgement.stragglers):
        said.append(
            f"The exchange takes {_ms(window.transfer)} of {_ms(window.step)}: balancing cannot cure that. Use a "
            "larger batch, fewer workers with more cores each, or a faster network (transport='mpi')."
        )
    if judgement.remainder_cost:
        rows, workers = round(sum(window.rows)), window.num_workers
        said.append(
            f"A batch of {rows} rows cannot be divided by {workers}: some have {min(window.rows):.0f}, some "
            f"{max(window.rows):.0f}, which costs {judgement.remainder_cost:.0%}. Use a batch of "
            f"{rows // workers * workers or workers} or {(rows // workers + 1) * workers} rows."
        )
    return said


def describe_straggler(straggler: Straggler, names: Sequence[str]) -> str:
    """Who is slow, in what, what it costs, and what to look at."""
    cost = straggler.cost
    part = _DOES.get(straggler.part, f"{straggler.part} takes")
    cure = _CURES[straggler.part]
    if straggler.part == "compute" and straggler.rows > _MANY_ROWS * straggler.peers_rows:
        rows = f"{straggler.rows:.1f} rows a step, the others {straggler.peers_rows:.1f}"
        cure = f"It has {rows}: give the workers equal shares."
    elif straggler.part == "compute" and straggler.peers_rows > _MANY_ROWS * straggler.rows:
        cure = f"It has {straggler.rows:.1f} rows a step already, the others {straggler.peers_rows:.1f}."
    return (
        f"{names[straggler.worker]} is slow in {straggler.persistence:.0%} of the steps: {part} "
        f"{_ms(straggler.own_s)}, {_ms(straggler.peers_s)} on the others. Without that a step would take "
        f"{_ms(cost.without_s)} instead of {_ms(cost.step_s)}; it costs {cost.share:.0%}. {cure}"
    )


def _ms(seconds: float) -> str:
    milliseconds = 1000 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"
