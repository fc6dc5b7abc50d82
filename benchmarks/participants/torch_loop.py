"""PyTorch's DistributedDataParallel over gloo; for one worker a plain loop. Batches are slices of tensors in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import distributed, nn

from benchmarks.place import EpochClock, Place
from benchmarks.torch_models import build
from benchmarks.workloads import LEARNING_RATE, NUM_BATCHES, WORKLOADS, fixed_data


def measure(place: Place, model: str, epochs: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = WORKLOADS[model]
    inputs, labels = fixed_data(model, size.batch * place.workers)
    if model == "cnn":
        inputs = np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))
    # Of every global batch this worker's rows.
    own = [torch.from_numpy(a).split(size.batch)[place.rank :: place.workers] for a in (inputs, labels)]
    network = build(model)
    if place.workers > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{place.directory}/store", rank=place.rank, world_size=place.workers
        )
        network = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    loss_of = nn.CrossEntropyLoss()
    clock = EpochClock(size.steps)
    losses = []
    for _ in range(1 + epochs):
        for step in range(size.steps):
            loss = loss_of(network(own[0][step % NUM_BATCHES]), own[1][step % NUM_BATCHES])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(float(loss))
        clock.epoch_ended()
    return {"series": {"": clock.series()}, "losses": losses}
