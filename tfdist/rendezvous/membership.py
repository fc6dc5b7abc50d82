"""Who the members of an elastic job are, as a pure state machine.

A *round* is one group of members. Processes *enter*, *ask* for the next round, and *leave* (their connection closes,
or the launcher says so). The rules:

- The first round is formed when every process that entered has asked and all that are expected have entered, or when
  at least the fewest have asked and the time for latecomers is over.
- A later round is formed when all present members of the one before have asked. Those who have left are out of it.
- Who enters after the first round is a *newcomer*: it is taken in with a round for which all members asked at a
  boundary between two steps, because there they can give it their state. Members that lost one ask within a step.
- A member that is present and does not ask within the limit, while others wait for it, is put out.
- Fewer members than the fewest: the job cannot go on in these processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["Asked", "Membership", "Round", "Rules", "Verdict", "decide"]


@dataclass(frozen=True)
class Rules:
    """The numbers of a job.

    Attributes:
        fewest: With fewer members the job does not go on.
        most: How many there are at most.
        latecomer_limit_s: How long the first round waits for more than the fewest, in seconds.
        regroup_limit_s: How long a later round waits for its members.
    """

    fewest: int
    most: int
    latecomer_limit_s: float = 300.0
    regroup_limit_s: float = 60.0


@dataclass(frozen=True)
class Asked:
    """A process's request for the next round.

    Attributes:
        address: Where the other members reach it.
        position: How far it has come, in its own terms: told to the others.
        at_boundary: Whether it is between two steps.
        at: When it asked.
    """

    address: str
    position: tuple[int, ...]
    at_boundary: bool
    at: float


@dataclass(frozen=True)
class Round:
    """A group.

    Attributes:
        number: From 0.
        members: The processes, by rank.
        asked: What they asked with, by process.
    """

    number: int
    members: tuple[str, ...]
    asked: Mapping[str, Asked]


@dataclass(frozen=True)
class Membership:
    """The job so far.

    Attributes:
        rules: The numbers.
        present: The processes that have entered and not left, in the order of their entering.
        asked: Those that wait for the next round.
        members: The members of the present round; none before the first.
        number: The number of the next round.
    """

    rules: Rules
    present: tuple[str, ...] = ()
    asked: Mapping[str, Asked] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    number: int = 0

    def enter(self, process: str) -> Membership:
        """A process has come."""
        return replace(self, present=(*self.present, process))

    def leave(self, process: str) -> Membership:
        """A process is gone."""
        asked = {name: each for name, each in self.asked.items() if name != process}
        return replace(self, present=tuple(name for name in self.present if name != process), asked=asked)

    def ask(self, process: str, asked: Asked) -> Membership:
        """A process asks for the next round."""
        return replace(self, asked={**self.asked, process: asked})

    @property
    def newcomers(self) -> tuple[str, ...]:
        """Those who wait to be taken in, while there are members."""
        return tuple(name for name in self.present if name not in self.members and name in self.asked)


@dataclass(frozen=True)
class Verdict:
    """What to do now.

    Attributes:
        round: The round that is formed; None for none yet.
        put_out: Processes to put out, with the reason.
        failure: Why the job cannot go on in these processes; empty where it can.
    """

    round: Round | None = None
    put_out: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""


def decide(state: Membership, now: float) -> tuple[Membership, Verdict]:
    """Decides whether a round is formed.

    Args:
        state: The job so far.
        now: The time.

    Returns:
        The job after the verdict, and the verdict. Processes that are put out have left.
    """
    if not state.members:
        return _decide_first(state, now)
    there = [name for name in state.members if name in state.present]
    waiting = [name for name in there if name in state.asked]
    if not there:
        return state, Verdict(failure="every member of the job is gone")
    if not waiting:
        return state, Verdict()
    absent = [name for name in there if name not in state.asked]
    if absent:
        first = min(state.asked[name].at for name in waiting)
        if now - first < state.rules.regroup_limit_s:
            return state, Verdict()
        reason = (
            f"it did not come within {state.rules.regroup_limit_s:g} s when {', '.join(waiting)} formed a new group"
        )
        for name in absent:
            state = state.leave(name)
        state, verdict = decide(state, now)
        return state, replace(verdict, put_out={**dict.fromkeys(absent, reason), **verdict.put_out})
    newcomers: tuple[str, ...] = ()
    if all(state.asked[name].at_boundary for name in waiting):
        newcomers = state.newcomers[: state.rules.most - len(waiting)]
    members = (*waiting, *newcomers)
    if len(members) < state.rules.fewest:
        gone = len(state.members) - len(waiting)
        return state, Verdict(
            failure=f"{gone} of {len(state.members)} members are gone: {len(members)} are left, and the job needs at "
            f"least {state.rules.fewest}"
        )
    return _form(state, members)


def _decide_first(state: Membership, now: float) -> tuple[Membership, Verdict]:
    if not state.asked:
        return state, Verdict()
    first = min(each.at for each in state.asked.values())
    is_complete = len(state.asked) >= state.rules.most
    is_late = now - first >= state.rules.latecomer_limit_s
    if is_complete or (is_late and len(state.asked) >= state.rules.fewest):
        members = tuple(name for name in state.present if name in state.asked)[: state.rules.most]
        return _form(state, members)
    if is_late:
        return state, Verdict(
            failure=f"{len(state.asked)} members came within {state.rules.latecomer_limit_s:g} s, and the job needs at "
            f"least {state.rules.fewest}"
        )
    return state, Verdict()


def _form(state: Membership, members: tuple[str, ...]) -> tuple[Membership, Verdict]:
    formed = Round(state.number, members, {name: state.asked[name] for name in members})
    asked = {name: each for name, each in state.asked.items() if name not in members}
    return replace(state, members=members, asked=asked, number=state.number + 1), Verdict(formed)
