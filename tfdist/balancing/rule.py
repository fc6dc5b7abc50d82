"""The rule by which a worker is a straggler. Pure: what it knows goes in and comes out with every window.

A worker is slow in a window of steps if, beside the median of the other workers at the same steps, its time without
exchanges

- is longer by more than a tolerance (a quarter),
- is longer by more than the noise explains (four standard errors of the difference, from the median absolute deviation)
  and by more than a floor (1 ms),
- and was longer in at least three quarters of the steps, so that a few long steps are no straggler.

It becomes a straggler when it is slow in two windows in a row, and stops being one when in two windows in a row it is
not longer by half of the tolerance. In the same way its link to the others is slow if its bytes, to it or from it, take
longer than theirs by the tolerance, the noise, the floor, and in three quarters of the steps by a tenth of the step
(`tfdist/balancing/links.py`). Medians and the median absolute deviation as by Rousseeuw and Croux (1993,
"Alternatives to the median absolute deviation", Journal of the American Statistical Association 88).
"""

from __future__ import annotations

from dataclasses import dataclass

from tfdist.balancing.costs import Cost, cost_of
from tfdist.balancing.window import PARTS, Window

__all__ = ["Judge", "Judgement", "Rules", "Straggler"]


@dataclass(frozen=True)
class Rules:
    """The numbers of the rule.

    Attributes:
        tolerance: The share by which a worker may take longer than its peers.
        floor_s: The time by which it may, in seconds.
        persistence: In which share of the steps it has to.
        num_errors: How many standard errors it has to be away.
        num_windows: For how many windows in a row.
        input_bound: The share of a step that all workers wait for input from which on the job is bound by its input.
        network_bound: The share of a step that the exchange takes from which on the job is bound by its network.
        remainder: The share of the computing that an indivisible batch may cost without a word.
    """

    tolerance: float = 0.25
    floor_s: float = 0.001
    persistence: float = 0.75
    num_errors: float = 4.0
    num_windows: int = 2
    input_bound: float = 0.3
    network_bound: float = 0.5
    remainder: float = 0.05


@dataclass(frozen=True)
class Straggler:
    """A worker that is slow.

    Attributes:
        worker: Its rank.
        part: The one of `PARTS` that makes it slow, or `link`.
        own_s: Of that part, in seconds; of a link, what its bytes take.
        peers_s: What it takes on the others, in seconds.
        persistence: In which share of the steps it was slow.
        rows: The mean of its rows.
        peers_rows: The same of the others.
        cost: What it costs the job.
    """

    worker: int
    part: str
    own_s: float
    peers_s: float
    persistence: float
    rows: float
    peers_rows: float
    cost: Cost


@dataclass(frozen=True)
class Judgement:
    """What is to be said of a window.

    Attributes:
        window: The window.
        stragglers: Those there are now.
        is_input_bound: Whether all workers wait for their input.
        is_network_bound: Whether the exchange takes most of the step.
        remainder_cost: The share of the computing that is lost since the rows of a batch cannot be divided by the
            workers; 0 where that is little, and where rows differ for another reason.
    """

    window: Window
    stragglers: tuple[Straggler, ...] = ()
    is_input_bound: bool = False
    is_network_bound: bool = False
    remainder_cost: float = 0.0

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to say."""
        return not (self.stragglers or self.is_input_bound or self.is_network_bound or self.remainder_cost)


class Judge:
    """Judges windows one after the other, of a job whose workers stay the same.

    Args:
        rules: The numbers.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self._num_slow: dict[tuple[int, bool], int] = {}  # by worker, and whether it is its link
        self._num_well: dict[tuple[int, bool], int] = {}
        self._stragglers: set[tuple[int, bool]] = set()

    def judge(self, window: Window) -> Judgement:
        """Takes one more window into account."""
        rules = self.rules
        for worker in range(window.num_workers):
            excess_s = window.own[worker] - window.peers[worker]
            self._count(
                (worker, False), excess_s, window.peers[worker], window.noise[worker], window.persistence[worker]
            )
            if window.link_excess:
                excess_s, noise_s = window.link_excess[worker], window.link_noise[worker]
                self._count((worker, True), excess_s, window.delivery, noise_s, window.link_persistence[worker])
        return Judgement(
            window,
            tuple(_describe(window, worker, is_link) for worker, is_link in sorted(self._stragglers)),
            is_input_bound=min(window.parts["input"]) > rules.input_bound * window.step,
            is_network_bound=window.num_workers > 1 and window.transfer > rules.network_bound * window.step,
            remainder_cost=_remainder_cost(window.rows, rules),
        )

    def _count(
        self, key: tuple[int, bool], excess_s: float, usual_s: float, noise_s: float, persistence: float
    ) -> None:
        rules = self.rules
        is_slow = (
            excess_s > rules.tolerance * usual_s
            and excess_s > rules.num_errors * noise_s
            and excess_s > rules.floor_s
            and persistence >= rules.persistence
        )
        is_well = excess_s <= rules.tolerance / 2 * usual_s or excess_s <= rules.floor_s / 2
        self._num_slow[key] = self._num_slow.get(key, 0) + 1 if is_slow else 0
        self._num_well[key] = self._num_well.get(key, 0) + 1 if is_well else 0
        if self._num_slow[key] >= rules.num_windows:
            self._stragglers.add(key)
        elif self._num_well[key] >= rules.num_windows:
            self._stragglers.discard(key)


def _remainder_cost(rows: list[float], rules: Rules) -> float:
    most, mean = max(rows), sum(rows) / len(rows)
    is_remainder = all(each == round(each) for each in rows) and most - min(rows) == 1
    cost = 1 - mean / most if is_remainder else 0.0
    return cost if cost > rules.remainder else 0.0


def _describe(window: Window, worker: int, is_link: bool) -> Straggler:
    if is_link:
        usual_s = window.delivery
        return Straggler(
            worker,
            "link",
            own_s=usual_s + window.link_excess[worker],
            peers_s=usual_s,
            persistence=window.link_persistence[worker],
            rows=window.rows[worker],
            peers_rows=_of_others(window.rows, worker),
            cost=cost_of(window, worker, link=True),
        )

    def excess(part: str) -> float:
        return window.parts[part][worker] - _of_others(window.parts[part], worker)

    part = max(PARTS, key=excess)
    times = window.parts[part]
    return Straggler(
        worker,
        part,
        own_s=times[worker],
        peers_s=_of_others(times, worker),
        persistence=window.persistence[worker],
        rows=window.rows[worker],
        peers_rows=_of_others(window.rows, worker),
        cost=cost_of(window, worker),
    )


def _of_others(values: list[float], worker: int) -> float:
    others = sorted(value for index, value in enumerate(values) if index != worker)
    return others[len(others) // 2] if others else values[worker]
