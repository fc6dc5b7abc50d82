"""Slurm's lists of nodes and of tasks per node. Pure.

Grammar (`hostlist` of Slurm, src/common/hostlist.c): names joined by commas; a name may have several ranges in
brackets, `rack[1-2]n[01-03,7]`, whose leading zeros count.
"""

from __future__ import annotations

import itertools
import re

from tfdist.errors import ClusterConfigError, describe_problem

__all__ = ["parse_node_list", "parse_tasks_per_node"]

_MOST_NODES = 1 << 20
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def parse_node_list(text: str, variable: str) -> list[str]:
    """The names of the nodes, in order.

    Args:
        text: Such as `n[1-3,07],gpu1`.
        variable: Where it comes from, for messages.

    Raises:
        ClusterConfigError: It is not such a list, or has more than a million nodes.
    """
    nodes: list[str] = []
    for name in _split(text, variable):
        pieces = _BRACKETS.split(name)
        choices = [
            [piece] if index % 2 == 0 else _expand(piece, text, variable, len(nodes))
            for index, piece in enumerate(pieces)
        ]
        if any(set("[] ") & set(piece) for piece in pieces[::2]) or name == "":
            raise _bad(text, variable)
        nodes += map("".join, itertools.product(*choices))
        if len(nodes) > _MOST_NODES:
            raise _bad(text, variable)
    return nodes


def parse_tasks_per_node(text: str, variable: str) -> list[int]:
    """How many tasks each node has.

    Args:
        text: Such as `2(x3),1`.
        variable: Where it comes from, for messages.

    Raises:
        ClusterConfigError: It is not such a list.
    """
    counts: list[int] = []
    for part in text.split(","):
        found = _TASKS.fullmatch(part.strip())
        repeat = int(found[2] or 1) if found else 0
        if found is None or len(counts) + repeat > _MOST_NODES:
            raise _bad(text, variable)
        counts += [int(found[1])] * repeat
    return counts


def _split(text: str, variable: str) -> list[str]:
    """Splits at commas that are not within brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        if depth not in (0, 1):
            raise _bad(text, variable)
    if depth:
        raise _bad(text, variable)
    return [part.strip() for part in [*parts, text[start:]]]


def _expand(ranges: str, text: str, variable: str, num_before: int) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise _bad(text, variable)
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or num_before + len(numbers) + int(last) - int(first) >= _MOST_NODES:
            raise _bad(text, variable)
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _bad(text: str, variable: str) -> ClusterConfigError:
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return ClusterConfigError(
        describe_problem(
            "A list of Slurm's cannot be read",
            received=f"{variable}={shown!r} (from the environment)",
            expected="names such as n[1-3,07],gpu1, or counts such as 2(x3),1; at most a million",
            fix="Set it to what Slurm sets, or set TF_CONFIG, which goes first.",
        )
    )
