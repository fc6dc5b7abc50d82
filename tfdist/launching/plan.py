"""Which tasks a job has, and with which environment each one starts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.cluster.config import name_task
from tfdist.cluster.job_environment import ELASTIC_WORKERS, RENDEZVOUS, ElasticEnvironment, JobEnvironment

THREAD_VARIABLES = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class TaskPlan:
    """One task of the job.

    Attributes:
        name: The task in words, such as `worker 1`.
        task_type: `chief`, `worker`, `ps` or `evaluator`.
        tf_config: Its TF_CONFIG; None if it trains alone.
    """

    name: str
    task_type: str
    tf_config: str | None


def count_ports(workers: int, parameter_servers: int) -> int:
    """How many addresses the cluster of `plan_tasks` has."""
    return workers + (parameter_servers + 1 if parameter_servers else 0)


def plan_tasks(workers: int, parameter_servers: int, evaluator: bool, ports: Sequence[int]) -> tuple[TaskPlan, ...]:
    """Lists the tasks of a job on this machine.

    With parameter servers there is one chief, which coordinates; without, worker 0 is the chief. A single worker
    without an evaluator trains alone. The evaluator is in no list of the cluster: it takes no part in it, and
    TensorFlow allows its absence.

    Args:
        workers: How many workers, at least 1.
        parameter_servers: How many parameter servers.
        evaluator: Whether there is an evaluator.
        ports: `count_ports` ports on 127.0.0.1.
    """
    if workers == 1 and not parameter_servers and not evaluator:
        return (TaskPlan(name_task("worker", 0), "worker", None),)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    cluster = {"worker": addresses[:workers]}
    if parameter_servers:
        chief, *servers = addresses[workers:]
        cluster = {"chief": [chief], **cluster, "ps": servers}
    members = [(task_type, task_id) for task_type, tasks in cluster.items() for task_id in range(len(tasks))]
    if evaluator:
        members.append(("evaluator", 0))
    return tuple(
        TaskPlan(
            name_task(task_type, task_id),
            task_type,
            json.dumps({"cluster": cluster, "task": {"type": task_type, "index": task_id}}),
        )
        for task_type, task_id in members
    )


def plan_elastic_tasks(workers: int) -> tuple[TaskPlan, ...]:
    """Lists the tasks of an elastic job: workers that are no cluster of TensorFlow's, and meet at the rendezvous."""
    return tuple(TaskPlan(name_task("worker", index), "worker", None) for index in range(workers))


def build_task_env(
    task: TaskPlan,
    job: JobEnvironment,
    env: Mapping[str, str],
    num_threads: int | None,
    elastic: ElasticEnvironment | None = None,
) -> dict[str, str]:
    """The environment of a task: the launcher's, and what the task has to know.

    Args:
        task: The task.
        job: What the launcher tells it.
        env: The launcher's environment. What it says of threads and log levels counts more than the defaults here.
        num_threads: The size of each thread pool; None leaves it to TensorFlow.
        elastic: What a worker of an elastic job has to know besides.
    """
    defaults = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    if num_threads is not None:
        defaults |= dict.fromkeys(THREAD_VARIABLES, str(num_threads))
        # An operation that waits for a peer holds one thread, so another one has to be there for the work.
        defaults["TF_NUM_INTEROP_THREADS"] = str(max(2, num_threads))
    task_env = {**defaults, **env, **job.to_env(), "PYTHONUNBUFFERED": "1"}
    task_env.pop("TF_CONFIG", None)
    if task.tf_config is not None:
        task_env["TF_CONFIG"] = task.tf_config
    for name in (RENDEZVOUS, ELASTIC_WORKERS):  # of an outer job
        task_env.pop(name, None)
    if elastic is not None:
        task_env |= elastic.to_env()
    return task_env


def threads_per_task(num_cores: int, workers: int, num_tasks: int) -> int | None:
    """Divides the cores between the workers, which do the work; None if there is but one task."""
    return None if num_tasks == 1 else max(1, num_cores // workers)
