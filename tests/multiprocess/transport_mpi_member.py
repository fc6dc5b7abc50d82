"""One process of an MPI job: sums, gathers, and says what it got; or stops, for the others to notice."""

import os
import signal
import sys
import time
import types
from pathlib import Path

import numpy as np
from transport_members import digest, inputs

_ROOT = Path(__file__).resolve().parent.parent.parent
package = types.ModuleType("tfdist.communication")  # without what loads TensorFlow
package.__path__ = [str(_ROOT / "tfdist" / "communication")]
sys.modules["tfdist.communication"] = package

from tfdist.communication.transports import TimeLimit  # noqa: E402
from tfdist.communication.transports.mpi import form_mpi_group  # noqa: E402
from tfdist.errors import ArgumentError, TimeLimitError  # noqa: E402


def say(*words):
    """Prints a line in one piece, because the processes share their output."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(scenario, count):
    """Prints one line for each finding."""
    from mpi4py import MPI

    rank = count - 1 - MPI.COMM_WORLD.Get_rank()  # tasks are numbered in an order of their own
    names = [f"worker {index}" for index in range(count)]
    if scenario == "size":
        names.append("worker too many")
    try:
        transport = form_mpi_group(rank, names, exchange_limit=TimeLimit(2, "exchange_timeout_s"))
    except ArgumentError as error:
        say("refused", str(error).replace("\n", " "))
        return
    if scenario == "sums":
        for dtype in ("float32", "float16", "int64"):
            for shapes in ([[]], [[0]], [[17], [3, 5]], [[300_001], [7]]):
                results = transport.all_reduce_sum(inputs(rank, shapes, dtype, 0))
                say("sum", dtype, shapes, digest(results))
        rows = transport.all_gather(np.full((rank, 2), rank))
        say("rows", [array.tolist() for array in rows])
        transport.close()
        return
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)
    try:
        transport.all_reduce_sum(inputs(rank, [[1000]], "float32", 0))
    except TimeLimitError as error:
        say("limit", str(error).replace("\n", " "))
        sys.exit(1)


main(sys.argv[1], int(sys.argv[2]))
