"""Files compressed as gzip does, in pieces: `gunzip` makes of them what TensorFlow reads."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from tfdist.storage.files import Files

__all__ = ["compress_file", "decompress_file"]

_PIECE_BYTES = 1 << 20
_LEVEL = 1  # weights gain little from a higher one
_GZIP = 31  # what zlib calls its largest window in gzip's format


def compress_file(files: Files, source: str, target: str) -> None:
    """Writes a file's compressed form beside it."""
    files.write(target, _compressed(files, source))


def decompress_file(files: Files, source: str, target: str) -> None:
    """Writes what a compressed file holds to a local one.

    Raises:
        OSError: The file cannot be read, or the other not be written.
        zlib.error: It is no compressed file.
    """
    decompressor = zlib.decompressobj(_GZIP)
    with files.open(source) as file, open(target, "wb") as output:
        while piece := file.read(_PIECE_BYTES):
            output.write(decompressor.decompress(piece))
        output.write(decompressor.flush())


def _compressed(files: Files, source: str) -> Iterator[bytes]:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    with files.open(source) as file:
        while piece := file.read(_PIECE_BYTES):
            yield compressor.compress(piece)
    yield compressor.flush()
