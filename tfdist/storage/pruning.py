"""Removing the checkpoints that a retention does not keep."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tfdist.checkpointing.retention import Retention, kept_checkpoints
from tfdist.storage.files import Files
from tfdist.storage.reading import FoundCheckpoint, find_checkpoints
from tfdist.storage.removal import remove_checkpoint

__all__ = ["remove_unkept", "unkept_checkpoints"]


def remove_unkept(
    files: Files,
    directory: str,
    retention: Retention,
    *,
    damaged: Collection[str] = (),
    protected: Collection[str] = (),
) -> list[str]:
    """Removes the complete checkpoints that no rule keeps, the oldest first. Damaged ones neither count nor go.

    Args:
        files: The file system.
        directory: The checkpoints' directory.
        retention: The rules.
        damaged: Names of checkpoints that are known to be damaged though their files have the right sizes.
        protected: Names that stay in any case.

    Returns:
        The names of what was removed.

    Raises:
        OSError: The directory cannot be read, or something cannot be removed.
    """
    found_there = find_checkpoints(files, directory)
    usable = [found for found in found_there if found.is_usable and str(found.name) not in damaged]
    unkept = unkept_checkpoints(usable, retention, protected=protected)
    for found in unkept:
        remove_checkpoint(files, found.path)
    return [str(found.name) for found in unkept]


def unkept_checkpoints(
    usable: Sequence[FoundCheckpoint], retention: Retention, *, protected: Collection[str] = ()
) -> list[FoundCheckpoint]:
    """Those of the usable checkpoints that no rule keeps, the oldest first."""
    facts = [found.manifest.facts(str(found.name)) for found in usable if found.manifest is not None]
    kept = kept_checkpoints(facts, retention, protected=protected)
    unkept = [found for found in usable if str(found.name) not in kept]
    return sorted(unkept, key=lambda found: found.name)
