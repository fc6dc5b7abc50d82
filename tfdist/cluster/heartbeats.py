"""A task's heartbeat: what it does now, since when, and where its time went. Pure: records of a fixed size and back.

The task keeps the record in a file of the job's report directory (`tfdist.reporting.heartbeat`), the launcher reads it.
Times are those of `time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tfdist.cluster.job_reports import file_stem

__all__ = ["PHASES", "RECORD_BYTES", "Heartbeat", "heartbeat_file_name", "pack_heartbeat", "parse_heartbeat"]

#: `outside`: of `fit`, `evaluate` and `predict`. `trace`: in a step function's first call, which builds its graph.
#: `step`: in a step, its input included, outside of exchanges. `exchange`: in an exchange with other workers. `save`:
#: writing a checkpoint while training waits. `other`: between steps, as in callbacks.
PHASES = ("outside", "trace", "step", "exchange", "save", "other")
_RECORD = struct.Struct(f"<QqQd{len(PHASES)}dQ")
RECORD_BYTES = _RECORD.size


@dataclass(frozen=True)
class Heartbeat:
    """What a task did last.

    Attributes:
        num_beats: How often it has changed its phase: more means progress.
        step: How many steps of training it has made.
        phase: One of `PHASES`.
        since: When the phase began.
        seconds: Seconds in each phase, finished intervals only.
    """

    num_beats: int
    step: int
    phase: str
    since: float
    seconds: dict[str, float] = field(default_factory=dict)


def heartbeat_file_name(task_name: str) -> str:
    """The name of a task's heartbeat in the report directory."""
    return f"heartbeat-{file_stem(task_name)}"


def pack_heartbeat(beat: Heartbeat) -> bytes:
    """The record. Its count stands at both ends, so that a reader notices one that is being written."""
    seconds = [beat.seconds.get(phase, 0.0) for phase in PHASES]
    return _RECORD.pack(beat.num_beats, beat.step, PHASES.index(beat.phase), beat.since, *seconds, beat.num_beats)


def parse_heartbeat(record: bytes) -> Heartbeat | None:
    """Reads a record; None where it is none, or half of one."""
    if len(record) != RECORD_BYTES:
        return None
    count, step, phase, since, *seconds, last = _RECORD.unpack(record)
    if count != last or count == 0 or phase >= len(PHASES):
        return None
    return Heartbeat(count, step, PHASES[phase], since, dict(zip(PHASES, seconds, strict=True)))
