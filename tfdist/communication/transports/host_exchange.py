"""Sums over the members of a job whose hosts' members share memory.

Every member copies a piece of its input into its slot of the shared memory. If there are two members, or little to sum,
each then adds up the whole piece from the slots. Otherwise each adds up its slice of the piece, and all copy the result
out. With several hosts, the first member of each sums the result with those of the other hosts before the others copy
it.

That a slot or a result is ready is said over the sockets: the header of the exchange says it of the first slot, and one
byte of each later step. Nobody spins. A system call lies between writing and telling, and between hearing and reading,
so that no other order of memory accesses can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tfdist.communication.transports.buffers import Bucket
from tfdist.communication.transports.header import HEADER_BYTES
from tfdist.communication.transports.interface import Array
from tfdist.communication.transports.links import Links
from tfdist.communication.transports.socket_exchange import SocketExchange
from tfdist.communication.transports.summation import sum_in_order

__all__ = ["HostExchange", "piece_bytes_for", "shared_bytes", "signal_positions"]

_AHEAD = 2  # pieces that a member writes before it waits for others, so that it waits seldom
_NUM_BUFFERS = 2 * _AHEAD + 2  # see `HostExchange`
_LARGEST_PIECE_BYTES, _SMALLEST_PIECE_BYTES = 1 << 21, 1 << 18
_SLOTS_BYTES = 1 << 23  # of one piece of all members
_SMALL_BYTES = 1 << 16
_READY, _SUMMED, _FINISHED = "ready", "summed", "finished"
_DOING = "summing over all members"


def piece_bytes_for(num_local: int) -> int:
    """How much of a bucket is in a slot at a time, where the largest host has so many members. Pure."""
    return max(_SMALLEST_PIECE_BYTES, min(_LARGEST_PIECE_BYTES, _SLOTS_BYTES // num_local // 4096 * 4096))


def shared_bytes(num_local: int, piece_bytes: int) -> int:
    """The size of the memory that the members of a host share: a slot for each, and one for the result."""
    return (num_local + 1) * _NUM_BUFFERS * piece_bytes


@lru_cache(maxsize=64)
def signal_positions(num_pieces: int, result_signal: str | None) -> dict[tuple[str, int], int]:
    """How many bytes of signals a member has sent when it has said that something is done. Pure.

    Args:
        num_pieces: The pieces of the sum.
        result_signal: What the member says of the result of a piece: `summed`, `finished` (the first member of a host,
            when there are several hosts), or None if each member sums all.

    Returns:
        By signal and piece, in the order of sending. That of the first slot is the header, which is not counted.
    """
    order = [(_READY, piece) for piece in range(min(_AHEAD, num_pieces))]
    for piece in range(num_pieces):
        if piece + _AHEAD < num_pieces:
            order.append((_READY, piece + _AHEAD))
        if result_signal == _SUMMED:
            order.append((_SUMMED, piece))
        elif result_signal == _FINISHED and piece >= _AHEAD:
            order.append((_FINISHED, piece - _AHEAD))
    if result_signal == _FINISHED:
        order += [(_FINISHED, piece) for piece in range(max(0, num_pieces - _AHEAD), num_pieces)]
    return {signal: position for position, signal in enumerate(order)}


class HostExchange:
    """The sums of a member that shares memory with others.

    A member writes a = 2 pieces more before it waits for piece k of the others. So a member that has said that piece k
    is ready has read what it needs of piece k - a - 1. (A result is copied out a pieces after it was summed, so of the
    result it has read piece k - 2 a - 1.) A member that is about to write piece k has heard from all that piece k - a -
    1 is ready, so all have read piece k - 2 a - 2: with 2 a + 2 buffers, which are taken in turns, no member needs to
    say that it has read something. The count of pieces goes on from one sum to the next.

    Args:
        links: The connections.
        local_ranks: The members on this host, this one among them.
        leaders: The first member of each host, in the order of ranks.
        memory: The shared bytes, `shared_bytes` of them.
        piece_bytes: How much of a bucket is in a slot at a time.
    """

    def __init__(
        self, links: Links, local_ranks: Sequence[int], leaders: Sequence[int], memory: Array, piece_bytes: int
    ) -> None:
        self._links = links
        self._ranks = sorted(local_ranks)
        self._index = self._ranks.index(links.rank)
        self._peers = [links.peers[rank] for rank in self._ranks if rank != links.rank]
        self._leader = self._ranks[0]
        self._has_several_hosts = len(leaders) > 1
        leads = self._leader == links.rank
        self._between_hosts = SocketExchange(links, leaders) if self._has_several_hosts and leads else None
        self._slots = memory.reshape(len(self._ranks) + 1, _NUM_BUFFERS, piece_bytes)  # the last one is the result's
        self._num_pieces_before = 0

    def all_reduce(self, parts: Bucket, out: Bucket) -> None:
        """Writes the sums of `parts` over all members of the job to `out`."""
        if not parts.size:
            return
        is_direct = not self._has_several_hosts and (len(self._ranks) == 2 or parts.size_bytes <= _SMALL_BYTES)
        step = self._slots.shape[-1] // parts.dtype.itemsize
        pieces = [(start, min(start + step, parts.size)) for start in range(0, parts.size, step)]
        positions = {}
        for peer in self._peers:
            is_finisher = self._has_several_hosts and peer.rank == self._leader
            result_signal = None if is_direct else _FINISHED if is_finisher else _SUMMED
            positions[peer.rank] = signal_positions(len(pieces), result_signal)
            peer.begin("D" if is_direct else "H", parts.size, parts.digest)
            peer.expect(memoryview(bytearray(len(positions[peer.rank]) - 1)))
        self._positions = positions
        for k in range(min(_AHEAD, len(pieces))):
            self._write(parts, pieces, k)
        for k in range(len(pieces)):
            self._write(parts, pieces, k + _AHEAD)
            self._wait(_READY, k, self._ranks)
            if is_direct:
                self._sum_into(out.segments(*pieces[k]), k, 0)
                continue
            self._sum_slice(pieces[k], k, parts.dtype)
            if k >= _AHEAD:
                self._take_result(out, pieces, k - _AHEAD)
        if not is_direct:
            for k in range(max(0, len(pieces) - _AHEAD), len(pieces)):
                self._take_result(out, pieces, k)
        self._links.run({}, _DOING)
        self._num_pieces_before += len(pieces)

    def _buffer(self, slot: int, piece: int, dtype: np.dtype[np.generic]) -> Array:
        buffer = self._slots[slot, (self._num_pieces_before + piece) % _NUM_BUFFERS]
        return buffer[: len(buffer) // dtype.itemsize * dtype.itemsize].view(dtype)

    def _write(self, parts: Bucket, pieces: list[tuple[int, int]], k: int) -> None:
        if k >= len(pieces):
            return
        slot = self._buffer(self._index, k, parts.dtype)
        offset = 0
        for part in parts.segments(*pieces[k]):
            np.copyto(slot[offset : offset + part.size], part)
            offset += part.size
        if k:
            self._signal()
        else:
            self._links.send()  # the header says it

    def _sum_slice(self, piece: tuple[int, int], k: int, dtype: np.dtype[np.generic]) -> None:
        size = piece[1] - piece[0]
        start, stop = (size * index // len(self._ranks) for index in (self._index, self._index + 1))
        self._sum_into([self._buffer(-1, k, dtype)[start:stop]], k, start)
        if self._between_hosts is None:
            self._signal()

    def _sum_into(self, results: list[Array], k: int, offset: int) -> None:
        slots = [self._buffer(slot, k, results[0].dtype) for slot in range(len(self._ranks))] if results else []
        for result in results:
            upto = offset + result.size
            sum_in_order([slot[offset:upto] for slot in slots], result)
            offset = upto

    def _take_result(self, out: Bucket, pieces: list[tuple[int, int]], k: int) -> None:
        start, stop = pieces[k]
        total = self._buffer(-1, k, out.dtype)[: stop - start]
        if self._between_hosts is not None:
            self._wait(_SUMMED, k, self._ranks)
            bucket = Bucket([total])
            self._between_hosts.all_reduce(bucket, bucket)
            self._signal()
        elif self._has_several_hosts:
            self._wait(_FINISHED, k, [self._leader])
        else:
            self._wait(_SUMMED, k, self._ranks)
        offset = 0
        for result in out.segments(start, stop):
            np.copyto(result, total[offset : offset + result.size])
            offset += result.size

    def _signal(self) -> None:
        for peer in self._peers:
            peer.outgoing.append(_BYTE)
        self._links.send()

    def _wait(self, signal: str, k: int, ranks: Sequence[int]) -> None:
        need = {rank: HEADER_BYTES + self._positions[rank][signal, k] for rank in ranks if rank != self._links.rank}
        self._links.run(need, _DOING, flush=False)


_BYTE = memoryview(b".")
