"""Whether a job hangs, and whose fault it is. Pure.

A task makes progress when its phase changes, which it does several times a step. The limit on silence is learned: ten
times the longest that any task has been in the same phase and come out again, and a floor. Where tasks wait for each
other, all of them are silent: the culprit is one that is silent outside of an exchange, or whose process is stopped.
While the launcher itself did not run, as on a machine that was paused, nobody was silent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdist.cluster.heartbeats import Heartbeat

__all__ = ["Hang", "HangRules", "Seen", "Silence", "Watch", "limit_of", "look"]

_TRACE_FACTOR = 3.0
_QUICK = ("input", "step", "exchange")
_PAUSE_S = 5.0


@dataclass(frozen=True)
class HangRules:
    """The limits on silence, in seconds.

    Attributes:
        limit_s: Of every phase but `outside` and `trace`; None for limits that are learned; 0 for none at all.
        floor_s: The least that a learned limit is, in the input, a step or an exchange.
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
        processor: For each task, the beat that was seen last and its processor time when it was first seen.
        at: When the job was looked at last.
        awake_since: Since when it has been looked at without a pause.
    """

    longest: Mapping[str, float] = field(default_factory=dict)
    last: Mapping[str, Heartbeat] = field(default_factory=dict)
    processor: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    at: float | None = None
    awake_since: float = 0.0


@dataclass(frozen=True)
class Silence:
    """What is known of a culprit.

    Attributes:
        task: Its name.
        beat: Its heartbeat; None where it has none, as one that serves.
        seconds: How long it has been silent.
        state: As in `Seen`.
        used_s: The processor time that it has used meanwhile.
    """

    task: str
    beat: Heartbeat | None
    seconds: float
    state: str
    used_s: float


@dataclass(frozen=True)
class Hang:
    """A diagnosis.

    Attributes:
        silences: Of the tasks at fault.
        victims: Those that wait for them.
        silence_s: How long the longest of all tasks had been silent, in seconds.
        is_mutual: Whether all wait in an exchange, and nobody is known to be at fault.
    """

    silences: tuple[Silence, ...]
    victims: tuple[str, ...]
    silence_s: float
    is_mutual: bool = False

    @property
    def culprits(self) -> tuple[str, ...]:
        """The tasks at fault."""
        return tuple(silence.task for silence in self.silences)

    def describe(self, places: Mapping[str, str] | None = None) -> str:
        """Says it in words.

        Args:
            places: What the stacks of culprits tell of where they are (`stacks.find_place`), by task.
        """
        if self.is_mutual:
            where = ", ".join(f"{each.task} at step {each.beat.step}" for each in self.silences if each.beat)
            return f"every worker waits in an exchange for {self.silence_s:.0f} s ({where}): nothing comes through"
        said = "; ".join(_describe(each, (places or {}).get(each.task, "")) for each in self.silences)
        if self.victims:
            wait = "waits" if len(self.victims) == 1 else "wait"
            said += f"; {', '.join(self.victims)} {wait} for it in an exchange"
        return said


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
    watch = _learn(watch, seen, now)
    if rules.limit_s == 0:
        return watch, None
    beats = {name: each.beat for name, each in seen.items() if each.beat is not None}
    quiet_s = {name: now - max(beat.since, watch.awake_since) for name, beat in beats.items()}
    silent = {
        name: quiet_s[name]
        for name, beat in beats.items()
        if beat.phase != "outside" and quiet_s[name] >= limit_of(beat.phase, rules, watch.longest)
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
    is_mutual = not culprits
    culprits = culprits or waiting
    victims = tuple(name for name in waiting if name not in culprits)
    silences = tuple(_silence(name, seen[name], watch, now) for name in culprits)
    # That they waited for a culprit says nothing of how long they wait otherwise.
    last = {name: beat for name, beat in watch.last.items() if name not in waiting}
    return dataclasses.replace(watch, last=last), Hang(silences, victims, silence_s, is_mutual)


def limit_of(phase: str, rules: HangRules, longest: Mapping[str, float]) -> float:
    """After how many seconds a task is silent in a phase."""
    if rules.limit_s is not None:
        return rules.limit_s * (rules.factor if phase == "trace" else 1.0)
    if phase not in _QUICK:
        return max(rules.slow_floor_s, rules.factor * longest.get(phase, 0.0))
    known_s = longest.get(phase, 0.0)
    if phase == "exchange":  # it lasts as long as the input and the step of the slowest one
        known_s = max(known_s, longest.get("input", 0.0) + longest.get("step", 0.0))
    # A batch of another shape traces anew, and each epoch fills the shuffle buffer, as the first call did.
    return max(rules.floor_s, rules.factor * known_s, _TRACE_FACTOR * longest.get("trace", 0.0))


def _learn(watch: Watch, seen: Mapping[str, Seen], now: float) -> Watch:
    has_paused = watch.at is not None and now - watch.at > _PAUSE_S
    longest, last, processor = dict(watch.longest), dict(watch.last), dict(watch.processor)
    for name, each in seen.items():
        beat = each.beat
        if beat is None:
            continue
        before = last.get(name)
        if before is not None and beat.num_beats < before.num_beats:
            before = None  # another process of that name
        if before is not None and beat.num_beats > before.num_beats and not has_paused:
            # The interval that was seen lasted until the last look at least. Of those since then the mean is known.
            spent_s = beat.seconds[before.phase] - before.seconds[before.phase]
            if before.phase == "step":  # in which a graph may have waited for its batch
                spent_s += beat.seconds["input"] - before.seconds["input"]
            seen_s = 0.0 if watch.at is None else min(spent_s, watch.at - before.since)
            num_intervals = max(1, (beat.num_beats - before.num_beats) // 2)
            longest[before.phase] = max(longest.get(before.phase, 0.0), seen_s, spent_s / num_intervals)
        last[name] = beat
        if processor.get(name, (0, 0.0))[0] != beat.num_beats:
            processor[name] = (beat.num_beats, each.processor_s)
    return Watch(longest, last, processor, now, now if has_paused else watch.awake_since)


def _silence(name: str, each: Seen, watch: Watch, now: float) -> Silence:
    if each.beat is None:
        return Silence(name, None, 0.0, each.state, 0.0)
    return Silence(name, each.beat, now - each.beat.since, each.state, each.processor_s - watch.processor[name][1])


def _describe(silence: Silence, place: str) -> str:
    beat = silence.beat
    if beat is None:
        return f"{silence.task} is stopped (state {silence.state})"
    said = f"{silence.task} hangs at step {beat.step} in the phase {beat.phase} for {silence.seconds:.0f} s: "
    if silence.state in "Tt":
        return f"{said}its process is stopped (state {silence.state})"
    computes = silence.used_s > silence.seconds / 4
    what = "computes without an end" if computes else "waits"
    if place and beat.phase in ("input", "step"):
        return f"{said}it {what} in {place}"
    if beat.phase == "step" and not computes:
        return f"{said}it waits, most likely for its input pipeline"
    return f"{said}it {what}" + (" between two steps, as in a callback" if beat.phase == "other" else "")
