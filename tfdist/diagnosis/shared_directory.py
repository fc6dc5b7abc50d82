"""Whether the nodes see each other's files in the directory for checkpoints.

Each node writes a file with its random token in the name and looks for those of the others. A network file system may
remember for seconds what a directory did not hold (acdirmin in nfs(5)): each look makes and removes a file first, by
which the client learns that the directory has changed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["SharedDirectory"]

_PREFIX = ".tfdist-doctor-"


class SharedDirectory:
    """The directory as this node sees it. Its calls block for ever on a dead mount: call them in a daemon thread."""

    def __init__(self, path: str, token: str) -> None:
        self._path = Path(path)
        self._own = self._path / f"{_PREFIX}{token}"

    def write(self) -> str:
        """Writes this node's file. Returns why that cannot be done, or an empty text."""
        if not self._path.is_dir():
            return "it is not a directory" if self._path.exists() else "it does not exist"
        try:
            with open(self._own, "x", encoding="ascii") as file:
                file.write("Left by tfdist doctor. It may be removed.\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def find(self, tokens: set[str]) -> set[str]:
        """Those of these tokens whose nodes' files are there."""
        look = Path(f"{self._own}-look")
        with contextlib.suppress(OSError):
            look.touch()
            look.unlink()
        try:
            names = set(os.listdir(self._path))
        except OSError:
            return set()
        return {token for token in tokens if f"{_PREFIX}{token}" in names}

    def remove(self) -> None:
        """Removes this node's file."""
        with contextlib.suppress(OSError):
            self._own.unlink()
