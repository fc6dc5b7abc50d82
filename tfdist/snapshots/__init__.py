"""Snapshots of a training's state, and the store that writes them as checkpoints and reads them back.

`storage` reads directories of checkpoints without TensorFlow; this package writes and reads what they hold.
"""

from tfdist.snapshots.reading import RestoredCheckpoint
from tfdist.snapshots.snapshot import Snapshot
from tfdist.snapshots.store import CheckpointStore, new_run

__all__ = ["CheckpointStore", "RestoredCheckpoint", "Snapshot", "new_run"]
