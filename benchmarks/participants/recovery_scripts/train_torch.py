"""The training of `recovery_job`, with PyTorch: `train_torch.py DIRECTORY KILL_AT`. It saves every 10 steps, too."""

from __future__ import annotations

import os
import sys

import torch
from torch import distributed, nn

from benchmarks.participants.recovery_job import note_step
from benchmarks.torch_models import build
from benchmarks.workloads import LEARNING_RATE, NUM_BATCHES, WORKLOADS, fixed_data

DIRECTORY, KILL_AT = sys.argv[1], int(sys.argv[2])
PATH = f"{DIRECTORY}/state.pt"

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank, workers = distributed.get_rank(), distributed.get_world_size()
size = WORKLOADS["small_dense"]
arrays = fixed_data("small_dense", size.batch * workers)
own = [torch.from_numpy(a).split(size.batch)[rank::workers] for a in arrays]
network = nn.parallel.DistributedDataParallel(build("small_dense"))
optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
done = 0
if os.path.exists(PATH):
    state = torch.load(PATH)
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
loss_of = nn.CrossEntropyLoss()
while done < 60:
    loss = loss_of(network(own[0][done % NUM_BATCHES]), own[1][done % NUM_BATCHES])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done += 1
    if done % 10 == 0 and rank == 0:
        torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": done}, PATH + ".new")
        os.replace(PATH + ".new", PATH)
    note_step(DIRECTORY, KILL_AT, rank, done)
distributed.destroy_process_group()
