"""Removing the checkpoints that a retention does not keep."""

from __future__ import annotations

from collections.abc import Collection

from tfdist.checkpointing.retention import Retention, kept_checkpoints
from tfdist.storage.files import Files
from tfdist.storage.reading import find_checkpoints
from tfdist.storage.removal import remove_checkpoint

__all__ = ["remove_unkept"]


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
    usable = [
        found for found in find_checkpoints(files, directory) if found.is_usable and str(found.name) not in damaged
    ]
    facts = [found.manifest.facts(str(found.name)) for found in usable if found.manifest is not None]
    kept = kept_checkpoints(facts, retention, protected=protected)
    removed = []
    for found in reversed(usable):
        if str(found.name) not in kept:
            remove_checkpoint(files, found.path)
            removed.append(str(found.name))
    return removed
