"""Sums and gatherings over the sockets between all members.

Large sums: the elements are cut into one slice per member. Each member sends every other its part of that one's slice,
adds up its own slice in the order of ranks as the pieces arrive, and sends each finished piece to all. That is the
reduce-scatter and all-gather by pairwise exchange of Thakur, Rabenseifner and Gropp (2005, "Optimization of Collective
Communication Operations in MPICH", sections 4.3 and 4.5): each member sends 2 (n - 1) / n of the bytes, as in a ring,
but in two steps instead of 2 (n - 1), and a half-precision sum is rounded once. Small sums: each member sends all to
all, and adds up everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfdist.communication.transports.buffers import Bucket, byte_view, layout_of
from tfdist.communication.transports.header import HEADER_BYTES
from tfdist.communication.transports.interface import Array
from tfdist.communication.transports.links import PIECE_BYTES, Links, Peer
from tfdist.communication.transports.summation import sum_in_order

__all__ = ["SocketExchange"]

_SMALL_BYTES = 1 << 16  # of what a member sends when it sends all to all
_WINDOW_PIECES = 4

_TakeMemory = Callable[[int, int, "np.dtype[Any]"], list[Array]]


class SocketExchange:
    """The exchanges among some members, over sockets.

    Args:
        links: The connections.
        ranks: Who takes part, this member among them.
    """

    def __init__(self, links: Links, ranks: Sequence[int]) -> None:
        self._links = links
        self._ranks = sorted(ranks)
        self._index = self._ranks.index(links.rank)
        self._peers = [links.peers[rank] for rank in self._ranks if rank != links.rank]
        self._memory = np.empty(0, np.uint8)

    def all_reduce(self, parts: Bucket, out: Bucket) -> None:
        """Writes the sums of `parts` over the members to `out`, which may be the same memory."""
        if not parts.size or not self._peers:
            for part, result in zip(parts.arrays, out.arrays, strict=True):
                np.copyto(result, part)
        elif parts.size_bytes * len(self._peers) <= _SMALL_BYTES:
            self._reduce_small(parts, out)
        else:
            self._reduce_large(parts, out)

    def all_gather(self, rows: Array) -> list[Array]:
        """The rows of all members, in the order of ranks."""
        gathered = {self._links.rank: rows.copy()}
        body = Bucket([rows])
        row_shape = rows.shape[1:]
        digest = layout_of([np.empty((0, *row_shape), rows.dtype)]).digest
        need = {peer.rank: HEADER_BYTES for peer in self._peers}

        def make_room(peer: Peer) -> None:
            if peer.rank in gathered or peer.received < HEADER_BYTES:
                return
            theirs: Array = np.empty((peer.their_count(), *row_shape), rows.dtype)
            gathered[peer.rank] = theirs
            if theirs.nbytes:
                peer.expect(byte_view(theirs))
                need[peer.rank] += theirs.nbytes

        for peer in self._peers:
            peer.begin("G", len(rows), digest, counts_may_differ=True)
            peer.outgoing.extend(_in_pieces(body))
            peer.on_received = lambda peer=peer: make_room(peer)
        self._links.run(need, "gathering rows")
        return [gathered[rank] for rank in self._ranks]

    def _reduce_small(self, parts: Bucket, out: Bucket) -> None:
        size = parts.size
        terms = self._take_memory(len(self._ranks) + 1, size, parts.dtype)
        own = terms[self._index]
        np.concatenate(parts.segments(0, size), out=own)
        for peer in self._peers:
            peer.begin("S", size, parts.digest)
            peer.outgoing.append(byte_view(own))
            peer.expect(byte_view(terms[self._ranks.index(peer.rank)]))
        self._links.run(
            {peer.rank: HEADER_BYTES + parts.size_bytes for peer in self._peers}, "summing over all members"
        )
        results = out.segments(0, size)
        if len(results) == 1:
            sum_in_order(terms[:-1], results[0])
            return
        sum_in_order(terms[:-1], terms[-1])
        start = 0
        for result in results:
            np.copyto(result, terms[-1][start : start + result.size])
            start += result.size

    def _reduce_large(self, parts: Bucket, out: Bucket) -> None:
        _LargeSum(self._links, self._ranks, parts, out, self._take_memory).run()

    def _take_memory(self, rows: int, size: int, dtype: np.dtype[Any]) -> list[Array]:
        """Arrays of `size` elements to work in, each aligned; the same memory every time."""
        stride = -(-size * dtype.itemsize // 64) * 64
        if self._memory.nbytes < rows * stride:
            self._memory = np.empty(rows * stride, np.uint8)
        return [self._memory[r * stride : r * stride + size * dtype.itemsize].view(dtype) for r in range(rows)]


class _LargeSum:
    """One sum of many elements."""

    def __init__(self, links: Links, ranks: list[int], parts: Bucket, out: Bucket, take_memory: _TakeMemory) -> None:
        self._links, self._ranks, self._parts, self._out = links, ranks, parts, out
        self._peers = [links.peers[rank] for rank in ranks if rank != links.rank]
        self._itemsize = parts.dtype.itemsize
        self._piece = PIECE_BYTES // self._itemsize
        bounds = [parts.size * index // len(ranks) for index in range(len(ranks) + 1)]
        self._slices = {rank: (bounds[index], bounds[index + 1]) for index, rank in enumerate(ranks)}
        self._start, self._stop = self._slices[links.rank]
        self._num_pieces = -(-(self._stop - self._start) // self._piece)
        self._num_summed = 0
        memory = take_memory(_WINDOW_PIECES * len(self._peers), self._piece, parts.dtype)
        self._windows = {
            peer.rank: memory[k * _WINDOW_PIECES : (k + 1) * _WINDOW_PIECES] for k, peer in enumerate(self._peers)
        }

    def run(self) -> None:
        """Sums. Returns when all results are there and all has been sent."""
        own_bytes = (self._stop - self._start) * self._itemsize
        need = {}
        # The member behind this one gets its part first, so that not all begin by sending to the same one.
        behind = sorted(self._peers, key=lambda peer: (peer.rank - self._links.rank) % (max(self._ranks) + 1))
        for peer in behind:
            start, stop = self._slices[peer.rank]
            peer.begin("L", self._parts.size, self._parts.digest)
            # What comes later may wait for other members: room for it is made when theirs has come, too.
            timed = min(own_bytes, _WINDOW_PIECES * PIECE_BYTES)
            peer.timed_bytes, peer.time_scale = HEADER_BYTES + timed, own_bytes / max(1, timed)
            for first in range(start, stop, self._piece):
                peer.outgoing.extend(self._parts.byte_views(first, min(first + self._piece, stop)))
            for piece in range(min(_WINDOW_PIECES, self._num_pieces)):
                self._expect_piece(peer, piece)
            if self._num_pieces <= _WINDOW_PIECES:
                self._expect_results(peer)
            peer.on_received = self._sum_what_has_come
            need[peer.rank] = HEADER_BYTES + own_bytes + (stop - start) * self._itemsize
        self._links.run(need, "summing over all members")

    def _sum_what_has_come(self) -> None:
        while self._num_summed < self._num_pieces:
            start = self._start + self._num_summed * self._piece
            stop = min(start + self._piece, self._stop)
            complete = HEADER_BYTES + (stop - self._start) * self._itemsize
            if any(peer.received < complete for peer in self._peers):
                return
            self._sum_piece(start, stop)
            self._num_summed += 1
            following = self._num_summed + _WINDOW_PIECES - 1
            for peer in self._peers:
                peer.outgoing.extend(self._out.byte_views(start, stop))
                if following < self._num_pieces:
                    self._expect_piece(peer, following)
                    if following == self._num_pieces - 1:
                        self._expect_results(peer)

    def _sum_piece(self, start: int, stop: int) -> None:
        windows = {rank: pieces[self._num_summed % _WINDOW_PIECES] for rank, pieces in self._windows.items()}
        offset = 0
        for part, result in zip(self._parts.segments(start, stop), self._out.segments(start, stop), strict=True):
            upto = offset + part.size
            terms = [part if rank == self._links.rank else windows[rank][offset:upto] for rank in self._ranks]
            sum_in_order(terms, result)
            offset = upto

    def _expect_piece(self, peer: Peer, piece: int) -> None:
        size = min(self._piece, self._stop - self._start - piece * self._piece)
        window = self._windows[peer.rank][piece % _WINDOW_PIECES]
        peer.expect(byte_view(window[:size]))

    def _expect_results(self, peer: Peer) -> None:
        start, stop = self._slices[peer.rank]
        for first in range(start, stop, self._piece):
            peer.incoming.extend(self._out.byte_views(first, min(first + self._piece, stop)))


def _in_pieces(bucket: Bucket) -> list[memoryview]:
    step = max(1, PIECE_BYTES // max(1, bucket.dtype.itemsize))
    return [
        v for start in range(0, bucket.size, step) for v in bucket.byte_views(start, min(start + step, bucket.size))
    ]
