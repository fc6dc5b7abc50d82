"""The models in PyTorch, with as many weights as those in Keras."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.keras_models import check_size
from benchmarks.workloads import BLOCKS, HEADS, HIDDEN, VOCABULARY, WIDTH

__all__ = ["build"]


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.dense = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](x + self.attention(x, x, x, need_weights=False)[0])
        return self.norms[1](x + self.dense(x))


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*[_Block() for _ in range(BLOCKS)])
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(tokens)).mean(dim=1))


def build(model: str) -> Any:
    """Returns a model that gives logits of 10 classes; images are NCHW."""
    built: nn.Module
    if model == "transformer":
        built = _Transformer()
    elif model == "cnn":
        first = (nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2))
        second = (nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2))
        built = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(1600, 10))
    else:
        width = {"small_dense": 256, "wide_dense": 2048}[model]
        hidden = (nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        built = nn.Sequential(*hidden, nn.Linear(width, 10))
    check_size(model, sum(p.numel() for p in built.parameters()))
    return built
