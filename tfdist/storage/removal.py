"""Removing checkpoints, so that none looks complete that is not, at any moment."""

from __future__ import annotations

from tfdist.checkpointing.naming import MANIFEST
from tfdist.storage.files import Files

__all__ = ["remove_checkpoint"]


def remove_checkpoint(files: Files, path: str) -> None:
    """Removes a checkpoint's directory, its manifest first, from whatever state it is in.

    Raises:
        OSError: Something cannot be removed. What is left is no complete checkpoint, unless the manifest could not be.
    """
    try:
        entries = files.list_dir(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if MANIFEST in entries:
        files.remove_file(f"{path}/{MANIFEST}")
        files.sync_dir(path)
        entries.remove(MANIFEST)
    for entry in entries:
        files.remove_file(f"{path}/{entry}")
    files.remove_dir(path)
