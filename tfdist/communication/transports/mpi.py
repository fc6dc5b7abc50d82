"""The transport on MPI, through mpi4py: for networks that MPI knows and sockets do not.

MPI moves the bytes, with non-blocking messages between pairs; the sums are this package's own, in the order of ranks.
MPI's own `Allreduce` promises equal results only as a recommendation to implementors (MPI 4.1, section 6.9.1), and
neither knows bfloat16 nor tells whom it waits for.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from tfdist.communication.transports import problems
from tfdist.communication.transports.buffers import Bucket, ResultPool, byte_view, layout_of
from tfdist.communication.transports.header import HEADER_BYTES, Header
from tfdist.communication.transports.interface import Array, TimeLimit, TransportClosedError
from tfdist.communication.transports.summation import as_bucket, as_rows, sum_in_order
from tfdist.errors import ArgumentError, TfdistError, describe_problem

__all__ = ["MpiTransport", "form_mpi_group"]

_HEADER_TAG, _DATA_TAG, _RESULT_TAG = 1, 2, 3
_SMALL_BYTES = 1 << 16  # of what a member sends when it sends all to all
_TESTS_BEFORE_SLEEP = 100
_LONGEST_SLEEP_S = 0.001
_Result = TypeVar("_Result")


def form_mpi_group(rank: int, names: Sequence[str], *, exchange_limit: TimeLimit) -> MpiTransport:
    """Makes a group of all processes of the MPI job. Collective; it waits in MPI itself, which has no time limit.

    Args:
        rank: This member's number, from its task; MPI's own order does not matter.
        names: The members' task names by rank, for errors.
        exchange_limit: How long an exchange waits for what is missing.

    Raises:
        ArgumentError: When mpi4py or an MPI library is missing, when the MPI job has another number of processes than
            there are members, or when MPI was started for one thread only.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise _unusable(str(error), "mpi4py and an MPI library", 'install them: pip install "tfdist[mpi]"') from error
    world = MPI.COMM_WORLD
    if world.Get_size() != len(names):
        raise _unusable(
            f"{world.Get_size()} processes in the MPI job, {len(names)} workers in the cluster description",
            "one MPI process for each worker",
            f"start the job with mpirun -n {len(names)}",
        )
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise _unusable("MPI was started for one thread", "MPI_THREAD_SERIALIZED", "leave starting MPI to mpi4py")
    group = world.Split(0, rank)
    if group.Get_rank() != rank:
        raise _unusable(f"two processes are {names[rank]}", "each worker once", "give each process its own task")
    return MpiTransport(MPI, group, list(names), exchange_limit)


class MpiTransport:
    """A member of an MPI job; `form_mpi_group` makes it. See `Transport` for what it promises, with these limits.

    When a member dies, most MPI libraries end the whole job. When one is silent, the time limit ends the wait, and a
    process that then ends does so with `MPI_Abort`, which ends the others, because `MPI_Finalize` would wait for the
    silent one. A group cannot be formed again without the lost members.
    """

    name = "mpi"

    def __init__(self, library: Any, group: Any, names: list[str], limit: TimeLimit) -> None:
        self.rank: int = group.Get_rank()
        self.num_members: int = group.Get_size()
        self.crosses_network = True  # MPI does not say
        self._mpi, self._group, self._names, self._limit = library, group, names, limit
        self._others = [rank for rank in range(self.num_members) if rank != self.rank]
        self._pool = ResultPool()
        self._sequence = 0
        self._exchanging = threading.Lock()
        self._is_closed = False
        self._failure: TfdistError | None = None
        self._unfinished: list[Any] = []  # MPI may still write to this memory

    def all_reduce_sum(self, parts: Sequence[Array], *, checksum: int = 0) -> list[Array]:
        """See `Transport.all_reduce_sum`."""
        arrays = as_bucket(parts)
        if not arrays:
            return []
        bucket = Bucket(arrays, layout_of(arrays, checksum))

        def reduce() -> list[Array]:
            results = self._pool.arrays_like(bucket.layout)
            if not bucket.size:
                return results
            flat = np.concatenate(bucket.segments(0, bucket.size))
            sum_up = self._sum_small if flat.nbytes * len(self._others) <= _SMALL_BYTES else self._sum_large
            total = sum_up(flat, bucket.digest)
            start = 0
            for result in Bucket(results, bucket.layout).segments(0, bucket.size):
                np.copyto(result, total[start : start + result.size])
                start += result.size
            return results

        return self._exchange(reduce)

    def all_gather(self, rows: Array) -> list[Array]:
        """See `Transport.all_gather`."""
        own = as_rows(rows)
        digest = layout_of([np.empty((0, *own.shape[1:]), own.dtype)]).digest

        def gather() -> list[Array]:
            counts = self._compare_headers("G", len(own), digest, counts_may_differ=True)
            gathered: list[Array] = [np.empty((counts[r], *own.shape[1:]), own.dtype) for r in counts]
            np.copyto(gathered[self.rank], own)
            self._swap(dict.fromkeys(self._others, own), {r: gathered[r] for r in self._others}, _DATA_TAG)
            return gathered

        return self._exchange(gather)

    def take_deliveries(self) -> tuple[float, float, int]:
        """See `Transport.take_deliveries`. MPI does not tell."""
        return 0.0, 0.0, -1

    def close(self) -> None:
        """See `Transport.close`. MPI itself stays as it is, and cannot tell the others."""
        self._is_closed = True

    def _sum_small(self, flat: Array, digest: int) -> Array:
        self._compare_headers("S", flat.size, digest)
        terms = [flat if rank == self.rank else np.empty_like(flat) for rank in range(self.num_members)]
        self._swap(dict.fromkeys(self._others, flat), {r: terms[r] for r in self._others}, _DATA_TAG)
        total = np.empty_like(flat)
        sum_in_order(terms, total)
        return total

    def _sum_large(self, flat: Array, digest: int) -> Array:
        self._compare_headers("L", flat.size, digest)
        bounds = [flat.size * index // self.num_members for index in range(self.num_members + 1)]
        slices = {rank: slice(bounds[rank], bounds[rank + 1]) for rank in range(self.num_members)}
        own = flat[slices[self.rank]]
        terms = [own if rank == self.rank else np.empty_like(own) for rank in range(self.num_members)]
        self._swap({r: flat[slices[r]] for r in self._others}, {r: terms[r] for r in self._others}, _DATA_TAG)
        sum_in_order(terms, own)
        self._swap(dict.fromkeys(self._others, own), {r: flat[slices[r]] for r in self._others}, _RESULT_TAG)
        return flat

    def _compare_headers(
        self, kind: str, count: int, digest: int, *, counts_may_differ: bool = False
    ) -> dict[int, int]:
        """Returns the counts of all members, by rank."""
        self._sequence += 1
        own = Header(self._sequence, count, digest, kind)
        sent: Array = np.frombuffer(own.to_bytes(), np.uint8)
        received = {rank: np.empty(HEADER_BYTES, np.uint8) for rank in self._others}
        self._swap(dict.fromkeys(self._others, sent), received, _HEADER_TAG)
        counts = {}
        for rank in range(self.num_members):
            theirs = own if rank == self.rank else Header.from_bytes(received[rank].tobytes())
            if theirs != (own._replace(size=theirs.size) if counts_may_differ else own):
                raise problems.mismatch(self._names[self.rank], self._names[rank], str(own), str(theirs))
            counts[rank] = theirs.size
        return counts

    def _swap(self, sent: Mapping[int, Array], received: Mapping[int, Array], tag: int) -> None:
        """Sends an array to, and receives one from, each of some members."""
        byte = self._mpi.BYTE
        waiting = {r: self._group.Irecv([byte_view(array), byte], r, tag) for r, array in received.items()}
        sending = {r: self._group.Isend([byte_view(array), byte], r, tag) for r, array in sent.items()}
        self._unfinished = [waiting, sending, sent, received]
        deadline = time.monotonic() + self._limit.seconds
        num_tests, num_left = 0, len(waiting) + len(sending)
        while num_left:
            if self._is_closed:
                raise TransportClosedError("The transport was closed by this process while it was in an exchange.")
            for requests in (waiting, sending):
                for rank in [rank for rank, request in requests.items() if request.Test()]:
                    del requests[rank]
            if len(waiting) + len(sending) < num_left:
                num_left, num_tests = len(waiting) + len(sending), 0
                deadline = time.monotonic() + self._limit.seconds
            elif time.monotonic() >= deadline:
                self._give_up(sorted(waiting or sending))
            num_tests += 1
            if num_tests > _TESTS_BEFORE_SLEEP:
                time.sleep(min(_LONGEST_SLEEP_S, 1e-6 * num_tests))
            else:
                time.sleep(0)  # lets another process have the core
        self._unfinished = []

    def _give_up(self, ranks: list[int]) -> NoReturn:
        raise problems.silent_peers(
            [self._names[rank] for rank in ranks], self._limit, f"while {self._names[self.rank]} was in an MPI exchange"
        )

    def _exchange(self, action: Callable[[], _Result]) -> _Result:
        with self._exchanging:
            if self._is_closed:
                raise TransportClosedError("The transport is closed.")
            if self._failure is not None:
                raise type(self._failure)(str(self._failure))
            try:
                return action()
            except BaseException as error:
                if self._failure is None:
                    atexit.register(self._mpi.COMM_WORLD.Abort, 1)
                broken_off = TransportClosedError(f"An exchange was broken off: {error!r}")
                self._failure = error if isinstance(error, TfdistError) else broken_off
                raise


def _unusable(received: str, expected: str, fix: str) -> ArgumentError:
    return ArgumentError(
        describe_problem("The transport mpi cannot be used", received=received, expected=expected, fix=fix)
    )
