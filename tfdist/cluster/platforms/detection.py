"""Which platform a process runs on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tfdist.cluster.config import ClusterConfig
from tfdist.cluster.platforms.kubernetes import detect_kubernetes
from tfdist.cluster.platforms.mpi import detect_mpi
from tfdist.cluster.platforms.reading import Found
from tfdist.cluster.platforms.sagemaker import detect_sagemaker
from tfdist.cluster.platforms.slurm import detect_slurm
from tfdist.cluster.platforms.vertex import detect_vertex
from tfdist.errors import ClusterConfigError, describe_problem

__all__ = ["DETECTORS", "Detection", "detect_platform"]

#: By name, in the order in which they count.
DETECTORS: dict[str, Callable[[Mapping[str, str]], Found | None]] = {
    "MPI": detect_mpi,
    "Slurm": detect_slurm,
    "Kubernetes": detect_kubernetes,
    "SageMaker": detect_sagemaker,
    "Vertex AI": detect_vertex,
}


@dataclass(frozen=True)
class Detection:
    """A platform that was recognised.

    Attributes:
        platform: Its name.
        evidence: The environment variables by which, in words.
        cluster: What it describes.
        others: Platforms that were recognised as well, and do not count.
    """

    platform: str
    evidence: str
    cluster: ClusterConfig
    others: tuple[str, ...] = ()


def detect_platform(env: Mapping[str, str]) -> Detection | None:
    """Asks all detectors.

    Args:
        env: The environment variables.

    Returns:
        None if no platform says that this process is one of several.

    Raises:
        ClusterConfigError: A platform is there in part, its description breaks a rule, or two platforms disagree on the
            number of processes or on which one this is.
    """
    found = {name: result for name, detect in DETECTORS.items() if (result := detect(env)) is not None}
    if not found:
        return None
    name, *others = found
    chosen = found[name]
    # Within a Slurm allocation mpirun starts its processes by daemons, whose step is the one that Slurm tells of.
    for other in others if name != "MPI" else [other for other in others if other != "Slurm"]:
        if (found[other].size, found[other].rank) != (chosen.size, chosen.rank):
            raise ClusterConfigError(
                describe_problem(
                    f"Two platforms describe this process, and disagree: {name} and {other}",
                    received=f"{name}: process {chosen.rank} of {chosen.size} (from {chosen.evidence}); {other}: "
                    f"process {found[other].rank} of {found[other].size} (from {found[other].evidence})",
                    expected="one platform, or two that agree",
                    fix="Start the processes with one of them, unset the variables of the other, or set TF_CONFIG.",
                )
            )
    source = f"{name} ({chosen.evidence})"
    cluster = ClusterConfig.from_mapping(
        {"cluster": chosen.cluster, "task": {"type": chosen.task_type, "index": chosen.task_id}}, source
    )
    return Detection(name, chosen.evidence, cluster, tuple(others))
