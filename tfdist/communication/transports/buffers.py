"""A list of arrays seen as one row of elements, and the buffers that results are handed out in."""

from __future__ import annotations

import sys
import threading
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tfdist.communication.transports.interface import Array

__all__ = ["ALIGNMENT_BYTES", "Bucket", "ResultPool", "byte_view"]

ALIGNMENT_BYTES = 64  # TensorFlow takes an array without copying it when it is aligned so (EIGEN_MAX_ALIGN_BYTES)
_KEPT_FREE = 4


def byte_view(array: Array) -> memoryview:
    """The memory of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


class Bucket:
    """Arrays of one dtype as one row of elements, without copying them.

    Attributes:
        arrays: The arrays.
        dtype: Theirs.
        size: The number of elements of all.
        size_bytes: Their bytes.
        digest: A checksum of dtype and shapes, to compare with other members'.
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = list(arrays)
        self.dtype = arrays[0].dtype
        self._flats = [array.reshape(-1) for array in arrays if array.size]
        self._ends = list(accumulate(flat.size for flat in self._flats))
        self.size = self._ends[-1] if self._ends else 0
        self.size_bytes = self.size * self.dtype.itemsize
        self.digest = zlib.crc32(repr((self.dtype.name, [array.shape for array in arrays])).encode())
        self._bytes: list[memoryview] | None = None

    def segments(self, start: int, stop: int) -> list[Array]:
        """The views of the arrays that make up the elements from `start` to `stop`, in order."""
        segments = []
        index = bisect_right(self._ends, start)
        while start < stop:
            flat, end = self._flats[index], self._ends[index]
            begin = end - flat.size
            upto = min(stop, end)
            segments.append(flat if upto - start == flat.size else flat[start - begin : upto - begin])
            start = upto
            index += 1
        return segments

    def byte_views(self, start: int, stop: int) -> list[memoryview]:
        """The memory of the elements from `start` to `stop`, in order."""
        if self._bytes is None:
            self._bytes = [byte_view(flat) for flat in self._flats]
        itemsize = self.dtype.itemsize
        views = []
        index = bisect_right(self._ends, start)
        while start < stop:
            end = self._ends[index]
            begin = end - self._flats[index].size
            upto = min(stop, end)
            views.append(self._bytes[index][(start - begin) * itemsize : (upto - begin) * itemsize])
            start = upto
            index += 1
        return views


class ResultPool:
    """Hands out arrays of given shapes on one aligned buffer, and uses a buffer again when nobody refers to it.

    Fresh memory costs a page fault for every 4 kB, which is as much as the exchange itself; a step asks for the same
    shapes every time. Whether a buffer is free is read from its reference count: each array handed out refers to it,
    also when TensorFlow keeps only the array's memory.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, list[Array]] = {}
        self._lock = threading.Lock()

    def arrays_like(self, arrays: Sequence[Array]) -> list[Array]:
        """Arrays of the same shapes and dtype as `arrays`, with any content, each aligned to 64 bytes."""
        sizes = [-(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for array in arrays]
        buffer = self._free_buffer(sum(sizes))
        offset = -buffer.ctypes.data % ALIGNMENT_BYTES
        handed = []
        for array, size in zip(arrays, sizes, strict=True):
            handed.append(buffer[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape))
            offset += size
        return handed

    def _free_buffer(self, size_bytes: int) -> Array:
        with self._lock:
            buffers = self._buffers.setdefault(size_bytes, [])
            for position in range(len(buffers)):
                if sys.getrefcount(buffers[position]) == _REFERENCES_WHEN_FREE:
                    return buffers[position]
            buffer: Array = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)
            if len(buffers) < _KEPT_FREE:
                buffers.append(buffer)
            return buffer


def _count_references_when_free() -> int:
    probe = [np.empty(1, np.uint8)]
    return sys.getrefcount(probe[0])


_REFERENCES_WHEN_FREE = _count_references_when_free()
