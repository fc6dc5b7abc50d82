"""tfdist's `fit` under ParameterServerStrategy. Workers read their own data, as in `tf_keras_servers`."""

from __future__ import annotations

from typing import Any

from benchmarks.keras_models import build_compiled
from benchmarks.participants.servers import time_fit_of_servers, worker_data
from benchmarks.place import Place


def measure(place: Place, model: str, epochs: int) -> dict[str, Any]:
    import keras

    import tfdist

    def train() -> dict[str, Any]:
        strategy = tfdist.parameter_server_strategy()
        with strategy.scope():
            network = build_compiled(keras, model)
        data = strategy.distribute_datasets_from_function(worker_data(model))
        return time_fit_of_servers(keras, network, data, model, epochs)

    measured: dict[str, Any] = {}
    tfdist.run(lambda: measured.update(train()))
    assert place.task == "chief"  # elsewhere `run` serves, and ends the process
    return measured
