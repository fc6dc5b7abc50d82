"""What members tell each other before an exchange, to find out that they do not make the same one. Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["HEADER_BYTES", "Header"]

_LAYOUT = struct.Struct("<QQII")
HEADER_BYTES = _LAYOUT.size


class Header(NamedTuple):
    """The head of an exchange between two members.

    Attributes:
        sequence: The number of the exchange, counted for these two.
        size: Elements or rows.
        digest: A checksum of dtype and shapes.
        kind: Which exchange it is; one letter.
    """

    sequence: int
    size: int
    digest: int
    kind: str

    def to_bytes(self) -> bytes:
        """As it is sent."""
        return _LAYOUT.pack(self.sequence, self.size, self.digest, ord(self.kind))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> Header:
        """As it was received."""
        sequence, size, digest, kind = _LAYOUT.unpack(data)
        return cls(sequence, size, digest, chr(kind % 256))

    def __str__(self) -> str:
        return (
            f"exchange {self.sequence} of kind {self.kind!r} with {self.size} elements or rows "
            f"(checksum of dtype and shapes {self.digest:08x})"
        )
