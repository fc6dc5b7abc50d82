"""Kubernetes: the pods of Indexed Jobs with a headless service, or of a JobSet, whose manifest names the hosts. Pure.

Kubernetes itself tells a pod its index (`JOB_COMPLETION_INDEX`, kubernetes.io, "Indexed Job"), and not how many there
are. The manifests of `tfdist kubernetes` say it. Kubeflow's TFJob sets TF_CONFIG itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdist.cluster.platforms.reading import Found, base_port, need, read_number
from tfdist.errors import ClusterConfigError, describe_problem

__all__ = ["INDEX", "NUM_PS", "NUM_WORKERS", "PATTERN", "TASK_TYPE", "detect_kubernetes"]

INDEX = "JOB_COMPLETION_INDEX"
NUM_WORKERS = "TFDIST_NUM_WORKERS"
#: With parameter servers there is a coordinator (`chief`), too. None where it is not set.
NUM_PS = "TFDIST_NUM_PS"
#: Of this pod: `worker` where it is not set.
TASK_TYPE = "TFDIST_TASK_TYPE"
#: The host of each pod, with `{}` for its index and `{type}` for its task type, such as `train-{type}-{}.train`.
PATTERN = "TFDIST_HOSTS_PATTERN"


def detect_kubernetes(env: Mapping[str, str]) -> Found | None:
    """Finds the pods of this one's job, one task each.

    Returns:
        None outside of a cluster, in an Indexed Job that is not tfdist's, and in one of a single pod.

    Raises:
        ClusterConfigError: A variable is missing or cannot be read, or there is no task like this pod's.
    """
    if PATTERN not in env and NUM_WORKERS not in env:
        return None
    missing = [name for name in (INDEX, NUM_WORKERS, PATTERN) if not env.get(name)]
    if missing:
        raise need("Kubernetes", missing, env)
    num_workers, index = (read_number(env, name, "Kubernetes") for name in (NUM_WORKERS, INDEX))
    num_ps = read_number(env, NUM_PS, "Kubernetes") if env.get(NUM_PS) else 0
    task_type = env.get(TASK_TYPE) or "worker"
    counts = {"worker": num_workers} if not num_ps else {"chief": 1, "worker": num_workers, "ps": num_ps}
    if index >= counts.get(task_type, 0):
        raise _no_such_task(env, task_type, index, counts)
    if sum(counts.values()) == 1:
        return None
    port = base_port(env, "", 1)
    cluster = {
        each: [f"{env[PATTERN].replace('{type}', each).replace('{}', str(k))}:{port}" for k in range(count)]
        for each, count in counts.items()
    }
    before = list(counts)[: list(counts).index(task_type)]
    rank = sum(counts[each] for each in before) + index
    evidence = ", ".join(name for name in (INDEX, NUM_WORKERS, NUM_PS, TASK_TYPE, PATTERN) if env.get(name))
    return Found(evidence, rank, sum(counts.values()), cluster, task_type, index)


def _no_such_task(env: Mapping[str, str], task_type: str, index: int, counts: Mapping[str, int]) -> ClusterConfigError:
    given = ", ".join(f"{name}={env[name]}" for name in (INDEX, TASK_TYPE, NUM_WORKERS, NUM_PS) if env.get(name))
    return ClusterConfigError(
        describe_problem(
            f"The job has no task like this pod: {task_type} {index}",
            received=f"{given} (from the environment)",
            expected=", ".join(f"{each} 0 to {count - 1}" for each, count in counts.items()),
            fix="Make the manifest's numbers agree: the completions of each Job are the number of its tasks.",
        )
    )
