"""What is measured, in which order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.callbacks import CALLBACKS, NO_CALLBACK, OWN_CALLBACKS
from benchmarks.workloads import WORKLOADS

__all__ = ["EXCHANGE_CASE", "PROFILES", "REFERENCE", "SECTIONS", "Choice", "Measurement", "Profile", "plan_case_groups"]

SECTIONS = (
    *("steps", "devices", "all_reduce", "scaling", "callbacks", "callback_overhead", "checkpoints"),
    *("load_balance", "recovery", "parameter_servers", "start_up"),
)
#: Beside which ratios are given, where it took part.
REFERENCE = {
    "steps": "tf.distribute loop, plain iterator",
    "devices": "tf.distribute loop",
    "all_reduce": "gloo",
    "scaling": "1 worker",
    "callbacks": NO_CALLBACK,
    "checkpoints": "tf.train.CheckpointManager",
    "callback_overhead": "",
    "load_balance": "",
    "recovery": "tfdist, all started again",
    "parameter_servers": "tf_keras fit",
    "start_up": "",
}
ALL_REDUCE_SIZES = tuple(1024 * 4**k for k in range(10))  # 1 kB to 256 MB
EXCHANGE_CASE = "all-reduce"


@dataclass(frozen=True)
class Profile:
    """How much a run measures, where the user names nothing else.

    Attributes:
        rounds: How often participants take turns.
        epochs: Epochs that are timed, at most.
        largest_bytes: Of what is all-reduced.
        models: Of the sections `steps` and `devices`.
        scaling_models: Of the section `scaling`.
        projected_models: Whose step of one worker is measured for the projection of `scaling`.
        workers: Numbers of workers.
        all_loops: Whether slower ways to write the loop take part.
        all_cases: Whether each model is trained on each number of workers, over each transport, and on devices.
            Otherwise models after the first are trained on two workers, not over MPI, and on no devices.
    """

    rounds: int
    epochs: int
    largest_bytes: int
    models: Sequence[str] = tuple(WORKLOADS)
    scaling_models: Sequence[str] = ("small_dense", "wide_dense")
    projected_models: Sequence[str] = tuple(WORKLOADS)
    workers: Sequence[int] = (1, 2, 4)
    all_loops: bool = True
    all_cases: bool = True


PROFILES = {
    "quick": Profile(1, 2, 1 << 22, ("small_dense",), ("small_dense",), (), (2,)),
    "middle": Profile(3, 3, 1 << 26, all_loops=False, all_cases=False),
    "full": Profile(5, 6, 1 << 28),
}


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
        is_mpi_job: Whether mpiexec starts the workers.
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
    is_mpi_job: bool = False
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """What the user chose to measure.

    Attributes:
        sections: Of `SECTIONS`.
        profile: What counts where the user named nothing.
        models: To train; None for those of the profile.
        workers: Numbers of workers; None for those of the profile.
        cores: How many cores the workers share.
    """

    sections: Sequence[str] = SECTIONS
    profile: Profile = PROFILES["full"]
    models: Sequence[str] | None = None
    workers: Sequence[int] | None = None
    cores: int = 2

    def train(self, model: str) -> dict[str, Any]:
        """The arguments of a participant that trains a model."""
        return {"model": model, "epochs": min(self.profile.epochs, WORKLOADS[model].epochs)}

    def trains_all_cases_of(self, model: str) -> bool:
        """See `Profile.all_cases`."""
        return self.profile.all_cases or model == self.profile.models[0]

    def workers_for(self, model: str) -> Sequence[int]:
        """The numbers of workers on which `steps` trains a model."""
        return self.workers or (self.profile.workers if self.trains_all_cases_of(model) else (2,))


def plan_case_groups(choice: Choice) -> list[list[Measurement]]:
    """Lists the cases, each with its participants. The participants of a case take turns, round by round."""
    plans = {
        "steps": _steps,
        "devices": _devices,
        "all_reduce": _all_reduce,
        "scaling": _scaling,
        "callbacks": _callbacks,
        "checkpoints": _checkpoints,
        "callback_overhead": _callback_overhead,
        "load_balance": _load_balance,
        "recovery": _recovery,
        "parameter_servers": _parameter_servers,
        "start_up": _start_up,
    }
    return [group for section in choice.sections for group in plans[section](choice)]


def _steps(choice: Choice) -> list[list[Measurement]]:
    models = choice.models or choice.profile.models
    return [_steps_of(choice, model, workers) for model in models for workers in choice.workers_for(model)]


def _steps_of(choice: Choice, model: str, workers: int) -> list[Measurement]:
    entries: list[tuple[str, str, dict[str, Any]]] = [
        ("tf.distribute loop, plain iterator", "tf_loop", {"data": "plain"})
    ]
    if choice.profile.all_loops:
        entries.append(("tf.distribute loop", "tf_loop", {}))
        if workers > 1:
            entries.append(("tf.distribute loop, as the tutorial", "tf_loop", {"data": "tutorial"}))
    entries.append(("tf_keras fit", "tf_keras_fit", {}))
    if workers == 1:
        entries += [("tfdist fit", "tfdist_fit", {}), ("Keras 3 fit, no strategy", "keras_fit", {})]
    else:
        transports = ("tcp", "collective", "mpi") if choice.trains_all_cases_of(model) else ("tcp", "collective")
        entries += [(f"tfdist fit ({t})", "tfdist_fit", {"transport": t}) for t in transports]
    entries.append(("torch DDP (gloo)" if workers > 1 else "torch", "torch_loop", {}))
    case = f"{model}, {_count(workers)}"
    return [
        Measurement(
            *("steps", case, name, module, {**choice.train(model), **arguments}),
            workers=workers,
            is_mpi_job=arguments.get("transport") == "mpi",
        )
        for name, module, arguments in entries
    ]


def _count(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}"


def _devices(choice: Choice) -> list[list[Measurement]]:
    entries = [
        ("tf.distribute loop", "tf_loop", {"devices": 2}),
        ("tf_keras fit", "tf_keras_fit", {"devices": 2}),
        ("Keras 3 fit, stock", "keras_fit", {"devices": 2}),
        ("tfdist fit", "tfdist_fit", {"devices": 2}),
    ]
    return [
        [Measurement("devices", f"{model}, 2 devices", n, m, {**choice.train(model), **a}) for n, m, a in entries]
        for model in choice.models or choice.profile.models[: None if choice.profile.all_cases else 1]
    ]


def _all_reduce(choice: Choice) -> list[list[Measurement]]:
    sizes = [size for size in ALL_REDUCE_SIZES if size <= choice.profile.largest_bytes]
    entries: list[tuple[str, str, dict[str, Any]]] = [
        ("gloo", "all_reduce_gloo", {}),
        ("tfdist tcp, shared memory", "all_reduce_tcp", {"shares_memory": True}),
        ("tfdist tcp, sockets", "all_reduce_tcp", {"shares_memory": False}),
        ("tfdist mpi", "all_reduce_mpi", {}),
        ("TensorFlow's ring", "all_reduce_tensorflow", {}),
        ("plain sockets, no sums", "loopback_ring", {}),
    ]
    return [
        [
            Measurement(
                *("all_reduce", f"{workers} workers", n, m, {"sizes": sizes, **a}),
                workers=workers,
                is_mpi_job=m == "all_reduce_mpi",
            )
            for n, m, a in entries
        ]
        for workers in choice.workers or choice.profile.workers
        if workers > 1
    ]


def _scaling(choice: Choice) -> list[list[Measurement]]:
    """What `scaling.py` evaluates: steps, and what its model of their time needs."""
    workers = sorted({1, *(choice.workers or choice.profile.workers)})
    several = workers[1:]
    sizes = [size for size in ALL_REDUCE_SIZES if size <= min(choice.profile.largest_bytes, 1 << 26)]
    groups = [
        [
            Measurement(
                *("scaling", EXCHANGE_CASE, f"{_count(n)}, {'shared memory' if shared else 'sockets'}"),
                *("all_reduce_tcp", {"sizes": sizes, "shares_memory": shared}),
                workers=n,
            )
            for n in several
            for shared in (True, False)
        ]
    ]
    models = choice.models or choice.profile.scaling_models
    for model in models:
        base, batch = choice.train(model), WORKLOADS[model].batch
        rows = {n: list(dict.fromkeys([batch, *([batch // n] if batch % n == 0 else [])])) for n in workers}
        every = sorted({number for numbers in rows.values() for number in numbers}, reverse=True)
        read = sorted({n * number for n, numbers in rows.items() for number in numbers})
        busy = sorted({min(n, choice.cores) for n in several} - {1})
        groups.append(
            [
                Measurement("scaling", model, "1 worker", "scaling_fit", {**base, "rows": every}),
                *[
                    Measurement("scaling", model, _count(n), "scaling_fit", {**base, "rows": rows[n]}, workers=n)
                    for n in several
                ],
                *[
                    Measurement(
                        *("scaling", model, f"{n} processes, each alone", "scaling_fit"),
                        {**base, "rows": every, "alone": True},
                        workers=n,
                    )
                    for n in busy
                ],
                Measurement("scaling", model, "batches read", "reading", {"model": model, "rows": read}),
            ]
        )
    others = () if choice.models else choice.profile.projected_models
    for model in (model for model in others if model not in models):
        batch = WORKLOADS[model].batch
        groups.append(
            [
                Measurement("scaling", model, "1 worker", "scaling_fit", {**choice.train(model), "rows": [batch]}),
                Measurement("scaling", model, "batches read", "reading", {"model": model, "rows": [batch, 4 * batch]}),
            ]
        )
    return groups


def _callbacks(choice: Choice) -> list[list[Measurement]]:
    models = choice.models or choice.profile.models[:1]
    return [
        [
            Measurement(
                *("callbacks", f"{model}, 2 workers", name, "callback_fit", {**choice.train(model), "callback": name}),
                workers=2,
            )
            for name in CALLBACKS
        ]
        for model in models
    ]


def _checkpoints(_: Choice) -> list[list[Measurement]]:
    methods = {
        "no saves": "none",
        "tf.train.CheckpointManager": "manager",
        "BackupAndRestore": "backup",
        "FaultTolerantCheckpoint": "tfdist",
    }
    case = "100 MB every 20 steps"
    return [[Measurement("checkpoints", case, n, "checkpoint_saves", {"method": m}) for n, m in methods.items()]]


def _callback_overhead(choice: Choice) -> list[list[Measurement]]:
    section, case, trained = "callback_overhead", "small_dense, 2 workers", choice.train("small_dense")
    return [
        [Measurement(section, case, name, section, {**trained, "callback": name}, workers=2)] for name in OWN_CALLBACKS
    ]


def _load_balance(_: Choice) -> list[list[Measurement]]:
    section, case = "load_balance", "worker 1 of 2 is slow"
    kinds = {"in computing": "compute", "in its input": "input", "in a callback": "other"}
    return [[Measurement(section, case, name, section, {"kind": kind}, workers=2)] for name, kind in kinds.items()]


def _parameter_servers(choice: Choice) -> list[list[Measurement]]:
    entries = [("tf_keras fit", "tf_keras_servers"), ("tfdist fit", "tfdist_servers")]
    case, base = "small_dense, 2 workers, 1 parameter server", choice.train("small_dense")
    return [[Measurement("parameter_servers", case, n, m, base, workers=2, parameter_servers=1) for n, m in entries]]


def _recovery(_: Choice) -> list[list[Measurement]]:
    kinds = {
        "tfdist, all started again": "restart",
        "tfdist, survivors go on": "elastic",
        "torchrun, all started again": "torchrun",
    }
    case = "3 workers, one is killed"
    return [[Measurement("recovery", case, n, "recovery_job", {"kind": k}, devices=2) for n, k in kinds.items()]]


def _start_up(_: Choice) -> list[list[Measurement]]:
    entries = [
        ("start_up_imports", "imports", 1),
        ("start_up_command", "commands", 1),
        ("start_up_run", "2 workers", 2),
    ]
    return [[Measurement("start_up", case, "tfdist", m, devices=cores)] for m, case, cores in entries]
