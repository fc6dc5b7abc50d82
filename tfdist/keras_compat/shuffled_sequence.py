"""A `keras.utils.PyDataset` whose batches come in an order that all workers share."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

__all__ = ["AgreedOrder"]


class AgreedOrder(keras.utils.PyDataset):
    """Shuffles the batches of another dataset by a seed that all workers share, in each epoch anew.

    Keras draws the order with Python's `random`, of which each worker has its own
    (keras/src/trainers/data_adapters/py_dataset_adapter.py).

    Args:
        dataset: A dataset of known length.
        seed: The shared seed.
    """

    def __init__(self, dataset: keras.utils.PyDataset, seed: int) -> None:
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self._dataset = dataset
        self._random = np.random.default_rng(seed)
        self._order = self._random.permutation(dataset.num_batches)

    @property
    def num_batches(self) -> int:
        """Batches in an epoch."""
        return self._dataset.num_batches

    def __getitem__(self, index: int) -> Any:
        return self._dataset[int(self._order[index])]

    def on_epoch_begin(self) -> None:
        """Passed on."""
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Passed on; then another order is drawn, on every worker alike."""
        self._dataset.on_epoch_end()
        self._order = self._random.permutation(self._dataset.num_batches)
