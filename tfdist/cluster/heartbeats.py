"""A task's heartbeat: what it does now, since when, and where its time went. Pure: records of a fixed size and back.

The task keeps the record in a file of the job's report directory (`tfdist.reporting.heartbeat`), the launcher reads it.
Times are those of `time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from mmap import mmap

from tfdist.cluster.job_reports import file_stem

__all__ = ["PHASES", "RECORD_BYTES", "Heartbeat", "heartbeat_file_name", "pack_heartbeat", "parse_heartbeat"]

#: `outside`: of `fit`, `evaluate` and `predict`. `trace`: in a step function's first call, which builds its graph.
#: `input`: takes the next batch, where Python takes it. `step`: in a step outside of exchanges; where the graph takes
#: the batch, its input included while it lasts. `exchange`: in an exchange with other workers. `save`: writing a
#: checkpoint while training waits. `other`: between steps, as in callbacks.
PHASES = ("outside", "trace", "input", "step", "exchange", "save", "other")
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


def pack_heartbeat(
    buffer: bytearray | mmap, num_beats: int, step: int, phase: int, since: float, *, seconds: Sequence[float]
) -> None:
    """Writes a record. Its count stands at both ends, so that a reader notices one that is being written.

    Args:
        buffer: Of `RECORD_BYTES` bytes.
        num_beats: As in `Heartbeat`.
        step: As in `Heartbeat`.
        phase: The number of the phase in `PHASES`.
        since: As in `Heartbeat`.
        seconds: Of each phase, in the order of `PHASES`.
    """
    _RECORD.pack_into(buffer, 0, num_beats, step, phase, since, *seconds, num_beats)


def parse_heartbeat(record: bytes) -> Heartbeat | None:
    """Reads a record; None where it is none, or half of one."""
    if len(record) != RECORD_BYTES:
        return None
    count, step, phase, since, *seconds, last = _RECORD.unpack(record)
    if count != last or count == 0 or phase >= len(PHASES):
        return None
    return Heartbeat(count, step, PHASES[phase], since, dict(zip(PHASES, seconds, strict=True)))
