"""Kubernetes: the pods of an Indexed Job with a headless service, or of a JobSet, whose manifest names the hosts. Pure.

Kubernetes itself tells a pod its index (`JOB_COMPLETION_INDEX`, kubernetes.io, "Indexed Job"), and not how many there
are. The manifests of `tfdist kubernetes` say it in `TFDIST_HOSTS_PATTERN`, `TFDIST_NUM_WORKERS` and `TFDIST_NUM_PS`.
Kubeflow's TFJob sets TF_CONFIG itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdist.cluster.platforms.reading import Found, base_port, need, read_number, workers_found

__all__ = ["INDEX", "NUM_WORKERS", "PATTERN", "detect_kubernetes"]

INDEX = "JOB_COMPLETION_INDEX"
NUM_WORKERS = "TFDIST_NUM_WORKERS"
#: The host of each pod, with `{}` for its index, such as `train-{}.train`.
PATTERN = "TFDIST_HOSTS_PATTERN"


def detect_kubernetes(env: Mapping[str, str]) -> Found | None:
    """Finds the pods of this one's Indexed Job, one worker each.

    Returns:
        None outside of a cluster, in an Indexed Job that is not tfdist's, and in one of a single pod.

    Raises:
        ClusterConfigError: A variable is missing or cannot be read.
    """
    if PATTERN not in env and NUM_WORKERS not in env:
        return None
    missing = [name for name in (INDEX, NUM_WORKERS, PATTERN) if not env.get(name)]
    if missing:
        raise need("Kubernetes", missing, env)
    size, rank = (read_number(env, name, "Kubernetes") for name in (NUM_WORKERS, INDEX))
    if size == 1:
        return None
    port = base_port(env, "", 1)
    addresses = [f"{env[PATTERN].replace('{}', str(index))}:{port}" for index in range(size)]
    return workers_found(f"{INDEX}, {NUM_WORKERS}, {PATTERN}", rank, addresses)
