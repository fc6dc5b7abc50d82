"""Which transport a job uses, and why. Pure."""

from __future__ import annotations

from tfdist.errors import ArgumentError, describe_problem

__all__ = ["TRANSPORT_NAMES", "choose_transport"]

TRANSPORT_NAMES = ("auto", "collective", "tcp", "mpi")


def choose_transport(
    requested: str,
    *,
    has_gpus: bool,
    num_workers: int,
    num_replicas_per_worker: int = 1,
    is_mpi_job: bool = False,
    mpi_available: bool = False,
    where: str = "transport",
) -> tuple[str, str]:
    """Chooses how workers exchange gradients.

    Args:
        requested: One of `TRANSPORT_NAMES`.
        has_gpus: Whether the workers train on GPUs.
        num_workers: How many workers there are.
        num_replicas_per_worker: On how many devices each of them trains.
        is_mpi_job: Whether this process was started by mpirun or the like.
        mpi_available: Whether mpi4py can be imported.
        where: The setting that `requested` is from, for errors.

    Returns:
        `collective` (TensorFlow's own collectives), `tcp` or `mpi`; and the reason, in words.

    Raises:
        ArgumentError: When `requested` is unknown, or cannot be had.
    """
    if requested not in TRANSPORT_NAMES:
        raise _rejected(where, requested, f"one of {', '.join(TRANSPORT_NAMES)}", 'use "auto"')
    if requested == "mpi" and not mpi_available:
        raise _rejected(where, requested, "mpi4py to be installed", 'pip install "tfdist[mpi]", or use "auto"')
    if requested == "mpi" and not is_mpi_job:
        raise _rejected(where, requested, "a job that mpirun started", 'start it with mpirun, or use "auto"')
    if requested in ("tcp", "mpi") and has_gpus:
        raise _rejected(
            where,
            requested,
            "workers without GPUs: gradients on GPUs do not go through NumPy buffers",
            'use "collective", which is NCCL on GPUs',
        )
    if requested in ("tcp", "mpi") and num_replicas_per_worker > 1:
        devices = f"workers of one device each, not of {num_replicas_per_worker}"
        raise _rejected(where, requested, devices, 'use "collective", or start a worker for each device')
    if requested != "auto":
        return requested, f"{where}={requested} asks for it"
    if num_workers == 1:
        return "collective", "there is one worker, and nothing to exchange with others"
    if has_gpus:
        return "collective", "the workers have GPUs, between which TensorFlow's collectives use NCCL"
    if num_replicas_per_worker > 1:
        return "collective", f"each worker trains on {num_replicas_per_worker} devices"
    reason = "the workers have no GPUs, and on CPUs it is faster than TensorFlow's collectives, and names a lost worker"
    if is_mpi_job:
        reason += f"; MPI cannot go on after the loss of a process, so it is used only when {where}=mpi asks for it"
    return "tcp", reason


def _rejected(where: str, requested: str, expected: str, fix: str) -> ArgumentError:
    return ArgumentError(
        describe_problem("The transport cannot be used", received=f"{where}={requested}", expected=expected, fix=fix)
    )
