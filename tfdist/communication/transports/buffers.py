"""A list of arrays seen as one row of elements, and the buffers that results are handed out in."""

from __future__ import annotations

import math
import sys
import threading
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from tfdist.communication.transports.interface import Array

__all__ = ["ALIGNMENT_BYTES", "Bucket", "Layout", "ResultPool", "byte_view", "layout_of"]

ALIGNMENT_BYTES = 64  # TensorFlow takes an array without copying it when it is aligned so (EIGEN_MAX_ALIGN_BYTES)
_KEPT_FREE = 4


def byte_view(array: Array) -> memoryview:
    """The memory of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


class Layout:
    """What arrays of one dtype and given shapes have in common: worked out once, not at each exchange.

    Attributes:
        dtype: The dtype.
        shapes: The shapes.
        ends: For each array that has elements, the number of elements up to its end.
        size: The number of elements of all.
        digest: A checksum of dtype, shapes and `checksum`, to compare with other members'.
        offsets: Where each array begins, in bytes, when each is aligned to 64 bytes.
        aligned_bytes: Where the last one ends.

    Args:
        dtype: The dtype.
        shapes: The shapes.
        checksum: Of what else must be the same for all members.
    """

    def __init__(self, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...], checksum: int) -> None:
        sizes = [math.prod(shape) for shape in shapes]
        self.dtype = dtype
        self.shapes = shapes
        self.ends = list(accumulate(size for size in sizes if size))
        self.size = sum(sizes)
        self.digest = zlib.crc32(repr((dtype.name, list(shapes))).encode(), checksum)
        aligned = [-(-size * dtype.itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes]
        *self.offsets, self.aligned_bytes = accumulate(aligned, initial=0)


def layout_of(arrays: Sequence[Array], checksum: int = 0) -> Layout:
    """The layout of one or more arrays of one dtype; see `Layout`."""
    return _layout(arrays[0].dtype, tuple([array.shape for array in arrays]), checksum)


_layout = lru_cache(maxsize=256)(Layout)


class Bucket:
    """Arrays of one dtype as one row of elements, without copying them.

    Attributes:
        arrays: The arrays.
        layout: Their dtype and shapes.
        dtype: Theirs.
        size: The number of elements of all.
        size_bytes: Their bytes.
        digest: A checksum of dtype and shapes, to compare with other members'.
    """

    def __init__(self, arrays: Sequence[Array], layout: Layout | None = None) -> None:
        self.arrays = list(arrays)
        self.layout = layout or layout_of(arrays)
        self.dtype = self.layout.dtype
        self.size = self.layout.size
        self.size_bytes = self.size * self.dtype.itemsize
        self.digest = self.layout.digest
        self._flats = [array.reshape(-1) for array in arrays if array.size]
        self._ends = self.layout.ends
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

    def arrays_like(self, layout: Layout) -> list[Array]:
        """Arrays of the layout's shapes and dtype, with any content, each aligned to 64 bytes."""
        buffer = self._free_buffer(layout.aligned_bytes)
        first = -buffer.__array_interface__["data"][0] % ALIGNMENT_BYTES
        return [
            np.ndarray(shape, layout.dtype, buffer, first + offset)
            for shape, offset in zip(layout.shapes, layout.offsets, strict=True)
        ]

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
