"""When to save, what to keep, how checkpoints are named, and what their manifest says.

Pure: standard library only; no clock and no disk. `storage` reads and removes checkpoints, `snapshots` writes them.
"""

from tfdist.checkpointing.retention import CheckpointFacts, Retention, kept_checkpoints
from tfdist.checkpointing.schedule import ClockAnswer, SaveDecision, SaveSchedule, answer_by_clock, decide_save

__all__ = [
    "CheckpointFacts",
    "ClockAnswer",
    "Retention",
    "SaveDecision",
    "SaveSchedule",
    "answer_by_clock",
    "decide_save",
    "kept_checkpoints",
]
