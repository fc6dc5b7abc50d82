"""What is measured, in which order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.workloads import WORKLOADS

__all__ = ["SECTIONS", "Choice", "Measurement", "plan_case_groups"]

SECTIONS = ("steps", "devices", "all_reduce", "parameter_servers", "start_up")
#: Beside which ratios are given, where it took part.
REFERENCE = {
    "steps": "tf.distribute loop, plain iterator",
    "devices": "tf.distribute loop",
    "all_reduce": "gloo",
    "parameter_servers": "tf_keras fit",
    "start_up": "",
}
ALL_REDUCE_SIZES = tuple(1024 * 4**k for k in range(10))  # 1 kB to 256 MB


@dataclass(frozen=True)
class Measurement:
    """One participant in one case.

    Attributes:
        section: One of `SECTIONS`.
        case: What all its participants do, such as `small_dense, 2 workers`.
        participant: Who does it.
        module: The file in `participants/`.
        arguments: Of its `measure`.
        devices: Logical devices, and cores, of a single process.
        environment: Further variables for its processes.
    """

    section: str
    case: str
    participant: str
    module: str
    arguments: dict[str, Any] = field(default_factory=dict)
    workers: int = 1
    parameter_servers: int = 0
    devices: int = 1
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """What the user chose to measure."""

    sections: Sequence[str] = SECTIONS
    models: Sequence[str] = tuple(WORKLOADS)
    workers: Sequence[int] = (1, 2, 4)
    quick: bool = False


def plan_case_groups(choice: Choice) -> list[list[Measurement]]:
    """Lists the cases, each with its participants. The participants of a case take turns, round by round."""
    plans = {
        "steps": _steps,
        "devices": _devices,
        "all_reduce": _all_reduce,
        "parameter_servers": _parameter_servers,
        "start_up": _start_up,
    }
    return [group for section in choice.sections for group in plans[section](choice)]


def _epochs(choice: Choice, model: str) -> int:
    return 2 if choice.quick else WORKLOADS[model].epochs


def _steps(choice: Choice) -> list[list[Measurement]]:
    groups = []
    for model in choice.models:
        for workers in choice.workers:
            fit: tuple[tuple[str, str, dict[str, Any]], ...] = (
                ("tfdist fit (tcp)", "tfdist_fit", {"transport": "tcp"}),
                ("tfdist fit (collective)", "tfdist_fit", {"transport": "collective"}),
            )
            if workers == 1:
                fit = (("tfdist fit", "tfdist_fit", {}), ("Keras 3 fit, no strategy", "keras_fit", {}))
            entries = [
                ("tf.distribute loop, plain iterator", "tf_loop", {"data": "plain"}),
                ("tf.distribute loop", "tf_loop", {}),
                ("tf.distribute loop, as the tutorial", "tf_loop", {"data": "tutorial"}),
                ("tf_keras fit", "tf_keras_fit", {}),
                *fit,
                ("torch DDP (gloo)" if workers > 1 else "torch", "torch_loop", {}),
            ]
            if workers == 1:
                del entries[2]
            base = {"model": model, "epochs": _epochs(choice, model)}
            case = f"{model}, {workers} worker{'s' if workers > 1 else ''}"
            groups.append([Measurement("steps", case, n, m, {**base, **a}, workers=workers) for n, m, a in entries])
    return groups


def _devices(choice: Choice) -> list[list[Measurement]]:
    entries = [
        ("tf.distribute loop", "tf_loop", {"devices": 2}),
        ("tf_keras fit", "tf_keras_fit", {"devices": 2}),
        ("Keras 3 fit, stock", "keras_fit", {"devices": 2}),
        ("tfdist fit", "tfdist_fit", {"devices": 2}),
    ]
    return [
        [
            Measurement("devices", f"{model}, 2 devices", n, m, {"model": model, "epochs": _epochs(choice, model), **a})
            for n, m, a in entries
        ]
        for model in choice.models
    ]


def _all_reduce(choice: Choice) -> list[list[Measurement]]:
    sizes = [size for size in ALL_REDUCE_SIZES if not choice.quick or size <= 1 << 22]
    entries: list[tuple[str, str, dict[str, Any]]] = [
        ("gloo", "all_reduce_gloo", {}),
        ("tfdist tcp, shared memory", "all_reduce_tcp", {"shares_memory": True}),
        ("tfdist tcp, sockets", "all_reduce_tcp", {"shares_memory": False}),
        ("TensorFlow's ring", "all_reduce_tensorflow", {}),
        ("plain sockets, no sums", "loopback_ring", {}),
    ]
    return [
        [
            Measurement("all_reduce", f"{workers} workers", n, m, {"sizes": sizes, **a}, workers=workers)
            for n, m, a in entries
        ]
        for workers in choice.workers
        if workers > 1
    ]


def _parameter_servers(choice: Choice) -> list[list[Measurement]]:
    base = {"model": "small_dense", "epochs": _epochs(choice, "small_dense")}
    entries = [("tf_keras fit", "tf_keras_servers"), ("tfdist fit", "tfdist_servers")]
    case = "small_dense, 2 workers, 1 parameter server"
    return [[Measurement("parameter_servers", case, n, m, base, workers=2, parameter_servers=1) for n, m in entries]]


def _start_up(_: Choice) -> list[list[Measurement]]:
    entries = [
        ("start_up_imports", "imports", 1),
        ("start_up_command", "commands", 1),
        ("start_up_run", "2 workers", 2),
    ]
    return [[Measurement("start_up", case, "tfdist", m, devices=cores)] for m, case, cores in entries]
