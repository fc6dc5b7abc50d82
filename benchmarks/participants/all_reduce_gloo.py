"""torch.distributed over gloo, which sums in place: first ones that show it, then zeros, which stay zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import distributed

from benchmarks.participants.all_reduce import time_sizes
from benchmarks.place import Place


def measure(place: Place, sizes: list[int]) -> dict[str, Any]:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{place.directory}/store", rank=place.rank, world_size=place.workers
    )

    def prepare(values: np.ndarray) -> Callable[[], np.ndarray | None]:
        summed = torch.from_numpy(values.copy())
        distributed.all_reduce(summed)
        assert bool((summed == place.workers * (place.workers + 1) / 2).all())
        buffer = torch.zeros(len(values))  # zeros stay zeros, however often they are summed in place

        def reduce() -> None:
            distributed.all_reduce(buffer)

        return reduce

    return time_sizes(place, sizes, prepare)
