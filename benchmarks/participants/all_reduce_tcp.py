"""tfdist's transport `tcp`, without TensorFlow around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.participants.all_reduce import time_sizes
from benchmarks.place import Place
from tfdist.communication.transports import TimeLimit, form_group, listen


def measure(place: Place, sizes: list[int], shares_memory: bool) -> dict[str, Any]:
    listener = listen("127.0.0.1")
    transport = form_group(
        listener,
        place.tell_all("address", f"127.0.0.1:{listener.port}"),
        place.rank,
        secret=b"of a benchmark",
        names=[f"worker {rank}" for rank in range(place.workers)],
        group="benchmark",
        forming_limit=TimeLimit(60, "the benchmark's limit"),
        exchange_limit=TimeLimit(60, "the benchmark's limit"),
        shares_memory=shares_memory,
    )
    assert shares_memory == (len(transport.hosts) == 1)

    def prepare(values: np.ndarray) -> Callable[[], np.ndarray]:
        return lambda: transport.all_reduce_sum([values])[0]

    measured = time_sizes(place, sizes, prepare)
    place.tell_all("measured", "")
    transport.close()
    return measured
