"""The few things that checkpoints ask of a file system, and how a local (or mounted) one does them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import BinaryIO, Protocol

__all__ = ["Files", "LocalFiles"]


class Files(Protocol):
    """A file system.

    Every method raises `OSError` with the system's error number: `FileNotFoundError` for what is not there.
    """

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, in any order."""

    def make_dirs(self, path: str) -> None:
        """Makes a directory and those above it; one that is there already is fine."""

    def make_dir(self, path: str) -> None:
        """Makes a directory in one that is there; one that is there already is fine."""

    def is_dir(self, path: str) -> bool:
        """Whether the path is a directory."""

    def size_bytes(self, path: str) -> int:
        """The size of a file."""

    def modified(self, path: str) -> float:
        """When a file or directory was last written to, in seconds since 1970, by the file system's clock."""

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading."""

    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        """Writes a file, and returns when it is on disk."""

    def sync_file(self, path: str) -> None:
        """Returns when a file that somebody wrote is on disk."""

    def sync_dir(self, path: str) -> None:
        """Returns when the names in a directory are on disk."""

    def remove_file(self, path: str) -> None:
        """Removes a file; one that is not there is fine."""

    def remove_dir(self, path: str) -> None:
        """Removes an empty directory; one that is not there is fine."""


class LocalFiles:
    """The file systems of this machine, mounted ones among them."""

    def list_dir(self, path: str) -> list[str]:
        """See `Files`."""
        return os.listdir(path)

    def make_dirs(self, path: str) -> None:
        """See `Files`."""
        missing = []
        parent = path
        while parent and not os.path.isdir(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        os.makedirs(path, exist_ok=True)
        for made in missing:
            self.sync_dir(os.path.dirname(made) or ".")

    def make_dir(self, path: str) -> None:
        """See `Files`."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def is_dir(self, path: str) -> bool:
        """See `Files`."""
        return os.path.isdir(path)

    def size_bytes(self, path: str) -> int:
        """See `Files`."""
        return os.stat(path).st_size

    def modified(self, path: str) -> float:
        """See `Files`."""
        return os.stat(path).st_mtime

    def open(self, path: str) -> BinaryIO:
        """See `Files`."""
        return open(path, "rb")

    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        """See `Files`."""
        with open(path, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def sync_file(self, path: str) -> None:
        """See `Files`."""
        _sync(path, os.O_RDONLY)

    def sync_dir(self, path: str) -> None:
        """See `Files`."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def remove_file(self, path: str) -> None:
        """See `Files`."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_dir(self, path: str) -> None:
        """See `Files`."""
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(path)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
