"""tfdist's transport `mpi`, without TensorFlow around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.participants.all_reduce import time_sizes
from benchmarks.place import Place
from tfdist.communication.transports import TimeLimit
from tfdist.communication.transports.mpi import form_mpi_group


def measure(place: Place, sizes: list[int]) -> dict[str, Any]:
    names = [f"worker {rank}" for rank in range(place.workers)]
    transport = form_mpi_group(place.rank, names, exchange_limit=TimeLimit(60, "the benchmark's limit"))

    def prepare(values: np.ndarray) -> Callable[[], np.ndarray]:
        return lambda: transport.all_reduce_sum([values])[0]

    return time_sizes(place, sizes, prepare)
