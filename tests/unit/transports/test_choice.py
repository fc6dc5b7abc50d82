"""Which transport is used, and why."""

import pytest

from tfdist.communication.transports.choice import choose_transport
from tfdist.errors import ArgumentError


@pytest.mark.parametrize(
    ("requested", "situation", "expected", "word"),
    [
        ("auto", (False, 1, False, False), "collective", "one worker"),
        ("auto", (True, 1, False, False), "collective", "one worker"),
        ("auto", (True, 2, False, False), "collective", "NCCL"),
        ("auto", (True, 2, True, True), "collective", "NCCL"),
        ("auto", (False, 2, False, False), "tcp", "no GPUs"),
        ("auto", (False, 2, False, True), "tcp", "no GPUs"),
        ("auto", (False, 2, True, True), "tcp", "only when transport=mpi asks"),  # MPI is not chosen by itself
        ("auto", (False, 2, True, False), "tcp", "no GPUs"),
        ("collective", (False, 2, False, False), "collective", "asks for it"),
        ("tcp", (False, 1, False, False), "tcp", "asks for it"),  # a group of one is a group
        ("mpi", (False, 2, True, True), "mpi", "asks for it"),
    ],
)
def test_choice(requested, situation, expected, word):
    has_gpus, num_workers, is_mpi_job, mpi_available = situation
    name, reason = choose_transport(
        requested,
        has_gpus=has_gpus,
        num_workers=num_workers,
        is_mpi_job=is_mpi_job,
        mpi_available=mpi_available,
    )
    assert name == expected
    assert word in reason


@pytest.mark.parametrize(
    ("requested", "has_gpus", "is_mpi_job", "mpi_available", "word"),
    [
        ("nccl", False, False, False, "one of auto, collective, tcp, mpi"),
        ("mpi", False, True, False, 'pip install "tfdist[mpi]"'),
        ("mpi", False, False, True, "mpirun"),
        ("tcp", True, False, False, "NCCL"),
        ("mpi", True, True, True, "NCCL"),
    ],
)
def test_refusals(requested, has_gpus, is_mpi_job, mpi_available, word):
    with pytest.raises(ArgumentError, match="TFDIST_TRANSPORT=") as caught:
        choose_transport(
            requested,
            has_gpus=has_gpus,
            num_workers=2,
            is_mpi_job=is_mpi_job,
            mpi_available=mpi_available,
            where="TFDIST_TRANSPORT",
        )
    assert word in str(caught.value)
