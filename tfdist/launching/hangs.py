"""Whether a job hangs, and whose fault it is. Pure.

A task makes progress when its phase changes, which it does several times a step. The limit on silence is learned: ten
times the longest that any task has been in the same phase and come out again, and a floor. Where tasks wait for each
other, all of them are silent: the culprit is one that is silent outside of an exchange, or whose process is stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdist.cluster.heartbeats import Heartbeat

__all__ = ["Hang", "HangRules", "Seen", "Watch", "limit_of", "look"]

_TRACE_FACTOR = 3.0


@dataclass(frozen=True)
class HangRules:
    """The limits on silence, in seconds.

    Attributes:
        limit_s: Of every phase but `outside` and `trace`; None for limits that are learned; 0 for none at all.
        floor_s: The least that a learned limit is, in a step or an exchange.
        slow_floor_s: The same for `trace`, `save` and `other`, which have work of the user's in them.
        factor: How many times the longest silence so far.
        sees_all_tasks: Whether the tasks that are looked at are all of the job's.
    """

    limit_s: float | None = None
    floor_s: float = 60.0
    slow_floor_s: float = 600.0
    factor: float = 10.0
    sees_all_tasks: bool = True


@dataclass(frozen=True)
class Seen:
    """A task at one moment.

    Attributes:
        beat: Its heartbeat; None where it has none.
        state: The letter of its process's state in /proc, such as `T` for stopped.
        processor_s: The processor time that it has used.
    """

    beat: Heartbeat | None
    state: str
    processor_s: float


@dataclass(frozen=True)
class Watch:
    """What is known of a job so far.

    Attributes:
        longest: The longest that any task has been in a phase, by phase.
        last: What was seen of each task last.
        processor: For each silent task, its processor time when its silence was first seen.
    """

    longest: Mapping[str, float] = field(default_factory=dict)
    last: Mapping[str, Heartbeat] = field(default_factory=dict)
    processor: Mapping[str, tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """A diagnosis.

    Attributes:
        culprits: The tasks at fault.
        victims: Those that wait for them.
        reason: In words.
        silence_s: How long the longest of them had been silent, in seconds.
    """

    culprits: tuple[str, ...]
    victims: tuple[str, ...]
    reason: str
    silence_s: float


def look(watch: Watch, rules: HangRules, seen: Mapping[str, Seen], now: float) -> tuple[Watch, Hang | None]:
    """Takes into account what is seen of the tasks that run now.

    Args:
        watch: What was known.
        rules: The limits.
        seen: The tasks.
        now: The time, by `time.monotonic`.

    Returns:
        What is known, and the diagnosis, if the job hangs.
    """
    watch = _learn(watch, seen)
    if rules.limit_s == 0:
        return watch, None
    beats = {name: each.beat for name, each in seen.items() if each.beat is not None}
    silent = {
        name: now - beat.since
        for name, beat in beats.items()
        if beat.phase != "outside" and now - beat.since >= limit_of(beat.phase, rules, watch.longest)
    }
    if not silent:
        return watch, None
    silence_s = max(silent.values())
    waiting = [name for name, beat in beats.items() if beat.phase == "exchange"]
    stopped = [name for name, each in seen.items() if each.state in "Tt"]
    culprits = stopped or [name for name in silent if name not in waiting]
    if not culprits and len(waiting) < len(beats):
        return watch, None  # somebody else is in a step, and not for too long yet
    if not culprits and not rules.sees_all_tasks:
        return watch, None  # they wait for a task of another node, and its launcher looks after it
    if not culprits:
        where = ", ".join(f"{name} at step {beats[name].step}" for name in waiting)
        reason = f"every worker waits in an exchange for {silence_s:.0f} s ({where}): nothing comes through"
        return watch, Hang(tuple(waiting), (), reason, silence_s)
    victims = tuple(name for name in waiting if name not in culprits)
    said = "; ".join(_describe(name, seen[name], watch, now) for name in culprits)
    if victims:
        said += f"; {', '.join(victims)} {'waits' if len(victims) == 1 else 'wait'} for it in an exchange"
    return watch, Hang(tuple(culprits), victims, said, silence_s)


def limit_of(phase: str, rules: HangRules, longest: Mapping[str, float]) -> float:
    """After how many seconds a task is silent in a phase."""
    if rules.limit_s is not None:
        return rules.limit_s * (rules.factor if phase == "trace" else 1.0)
    floor_s = rules.floor_s if phase in ("step", "exchange") else rules.slow_floor_s
    known = longest.get(phase, 0.0)
    if phase == "exchange":  # it lasts as long as the slowest one's step
        known = max(known, longest.get("step", 0.0))
    # A batch of another shape traces anew.
    traced_s = longest.get("trace", 0.0) if phase in ("step", "exchange") else 0.0
    return max(floor_s, rules.factor * known, _TRACE_FACTOR * traced_s)


def _learn(watch: Watch, seen: Mapping[str, Seen]) -> Watch:
    longest, last, processor = dict(watch.longest), dict(watch.last), dict(watch.processor)
    for name, each in seen.items():
        beat = each.beat
        if beat is None:
            continue
        before = last.get(name)
        if before is not None and beat.num_beats < before.num_beats:
            before = None  # another process of that name
        if before is not None and beat.num_beats > before.num_beats:
            # At least one interval was finished; the first one lasted until now at most, by the totals.
            spent = beat.seconds[before.phase] - before.seconds[before.phase]
            num_intervals = max(1, (beat.num_beats - before.num_beats) // 2)
            longest[before.phase] = max(longest.get(before.phase, 0.0), spent / num_intervals)
        last[name] = beat
        if processor.get(name, (0, 0.0))[0] != beat.num_beats:
            processor[name] = (beat.num_beats, each.processor_s)
    return dataclasses.replace(watch, longest=longest, last=last, processor=processor)


def _describe(name: str, each: Seen, watch: Watch, now: float) -> str:
    beat = each.beat
    if beat is None:
        return f"{name} is stopped (state {each.state})"
    where = f"{name} hangs at step {beat.step}"
    silence_s = now - beat.since
    if each.state in "Tt":
        return f"{where} in the phase {beat.phase} for {silence_s:.0f} s: its process is stopped (state {each.state})"
    used_s = each.processor_s - watch.processor[name][1]
    guess = ""
    if beat.phase == "step":
        is_busy = used_s > silence_s / 4
        guess = ": it computes without an end" if is_busy else ": it waits, most likely for its input pipeline"
    elif beat.phase == "other":
        guess = ": between two steps, as in a callback"
    return f"{where} in the phase {beat.phase} for {silence_s:.0f} s{guess}"
