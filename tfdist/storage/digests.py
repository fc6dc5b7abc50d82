"""Digests of files, read in pieces, and what a file is by them."""

from __future__ import annotations

import hashlib

from tfdist.checkpointing.manifest import FileFacts
from tfdist.storage.files import Files

__all__ = ["file_facts", "read_file"]

_PIECE_BYTES = 1 << 20


def file_facts(files: Files, path: str) -> FileFacts:
    """The size and the digest of a file. Python's lock is held neither while reading nor while digesting."""
    digest = hashlib.sha256()
    size_bytes = 0
    with files.open(path) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            size_bytes += len(piece)
    return FileFacts(size_bytes, digest.hexdigest())


def read_file(files: Files, path: str) -> bytes:
    """The whole of a small file."""
    with files.open(path) as file:
        return file.read()
