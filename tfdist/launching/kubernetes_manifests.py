"""The manifests of a job on Kubernetes, as dictionaries. Pure: they are printed, and nothing is run.

Kubernetes gives the pods of an Indexed Job their index and, behind a headless service, names
(kubernetes.io/docs/concepts/workloads/controllers/job, "Completion mode"). The rest a process learns from the config
map (tfdist/cluster/platforms/kubernetes.py). Kubeflow's training operator sets TF_CONFIG itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfdist.cluster.job_environment import JOB_SECRET
from tfdist.cluster.platforms import kubernetes
from tfdist.cluster.platforms.reading import BASE_PORT
from tfdist.errors import ArgumentError, describe_problem

__all__ = ["FORMATS", "KubernetesJob", "Resources", "secret_name", "write_manifests"]

Manifest = dict[str, Any]

FORMATS = ("job", "jobset", "tfjob")
_PORT = 20_000
_TFJOB_PORT = 2222  # what the operator puts into TF_CONFIG by default
_GRACE_S = 120  # for a save between SIGTERM and SIGKILL
_QUANTITY = r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")  # of a label, with room for `-worker-0-1023`
#: What no further start would change: a command line that is wrong, a program that is not there (128 is containerd's).
_HOPELESS = (2, 126, 127, 128)
#: What the options may be, and an example. Kubernetes would find the rest out, after the image has been built.
_RULES = {
    "name": (_NAME.pattern, "at most 40 of a-z, 0-9 and -, beginning with a letter and not ending with -", "train"),
    "image": (r"[^\s\x00-\x1f]+", "the name of an image, without spaces", "example/train:1"),
    "volume-claim": (
        r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?",
        "the name of a claim: at most 253 of a-z, 0-9, - and .",
        "checkpoints",
    ),
    "volume-size": (_QUANTITY, "a quantity, as Kubernetes writes it", "10Gi"),
    "cpus": (_QUANTITY, "a quantity, as Kubernetes writes it", "500m"),
    "memory": (_QUANTITY, "a quantity, as Kubernetes writes it", "8Gi"),
    "mount-path": (r"/[^:\s]+", "an absolute path without : and spaces", "/checkpoints"),
}


@dataclass(frozen=True)
class Resources:
    """What a pod asks for, as Kubernetes writes quantities; None for nothing."""

    cpus: str | None = None
    memory: str | None = None
    gpus: int = 0

    def to_manifest(self) -> Manifest:
        """Requests and limits; cores are not limited, which would only hold them up."""
        requests = {"cpu": self.cpus, "memory": self.memory}
        limits = {"memory": self.memory, "nvidia.com/gpu": self.gpus or None}
        found = {"requests": _present(requests), "limits": _present(limits)}
        return {name: values for name, values in found.items() if values}


@dataclass(frozen=True)
class KubernetesJob:
    """What the manifests ask for.

    Attributes:
        name: Of the job, and of all that belongs to it.
        image: Of the containers. The program is in it.
        command: What each task runs.
        workers: How many.
        parameter_servers: How many; with any, there is a coordinator, too.
        resources: Of a worker. The others get its memory and cores, and no GPUs.
        volume_claim: An existing claim of a volume that all nodes can write; None to make one.
        volume_size: Of the claim that is made.
        mount_path: Where the volume is in the containers.
        max_restarts: How often the job may be started again after a failure.
        kind: One of `FORMATS`.
    """

    name: str
    image: str
    command: Sequence[str]
    workers: int
    parameter_servers: int = 0
    resources: Resources = field(default_factory=Resources)
    volume_claim: str | None = None
    volume_size: str = "10Gi"
    mount_path: str = "/checkpoints"
    max_restarts: int = 3
    kind: str = "job"

    def __post_init__(self) -> None:
        """Checks the texts.

        Raises:
            ArgumentError: Kubernetes would not take one of them.
        """
        texts = {
            "name": self.name,
            "image": self.image,
            "volume-claim": self.volume_claim,
            "volume-size": self.volume_size,
            "cpus": self.resources.cpus,
            "memory": self.resources.memory,
            "mount-path": self.mount_path,
        }
        for option, text in texts.items():
            pattern, rule, example = _RULES[option]
            if text is not None and not re.fullmatch(pattern, text):
                raise ArgumentError(
                    describe_problem(
                        f"Kubernetes would not take --{option}",
                        received=f"--{option}={text!r} (from the command line)",
                        expected=rule,
                        fix=f"give one such as --{option} {example}",
                    )
                )

    @property
    def num_tasks(self) -> dict[str, int]:
        """By task type."""
        if not self.parameter_servers:
            return {"worker": self.workers}
        return {"chief": 1, "worker": self.workers, "ps": self.parameter_servers}


def secret_name(job: KubernetesJob) -> str:
    """The secret in which the job's tasks find the text by which they know each other."""
    return f"{job.name}-secret"


def write_manifests(job: KubernetesJob) -> list[Manifest]:
    """All manifests, in the order in which to apply them."""
    shared: list[Manifest] = [] if job.volume_claim else [_claim(job)]
    if job.kind == "tfjob":
        return [*shared, _tf_job(job)]
    if job.kind == "jobset":
        return [*shared, _config_map(job, f"{job.name}-{{type}}-0-{{}}.{job.name}"), _job_set(job)]
    jobs = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(job, f"{job.name}-{task}"), "spec": spec}
        for task, spec in ((task, _job_spec(job, task)) for task in job.num_tasks)
    ]
    return [*shared, _config_map(job, f"{job.name}-{{type}}-{{}}.{job.name}"), _service(job), *jobs]


def _metadata(job: KubernetesJob, name: str) -> Manifest:
    return {"name": name, "labels": _labels(job)}


def _labels(job: KubernetesJob) -> Manifest:
    return {"app.kubernetes.io/name": job.name, "app.kubernetes.io/managed-by": "tfdist"}


def _claim(job: KubernetesJob) -> Manifest:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": job.volume_size}}}
    metadata = _metadata(job, f"{job.name}-checkpoints")
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _config_map(job: KubernetesJob, hosts: str) -> Manifest:
    data = {
        kubernetes.PATTERN: hosts,
        kubernetes.NUM_WORKERS: str(job.workers),
        kubernetes.NUM_PS: str(job.parameter_servers),
        BASE_PORT: str(_PORT),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(job, job.name), "data": data}


def _service(job: KubernetesJob) -> Manifest:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # the tasks look for each other before any of them is ready
        "selector": {"app.kubernetes.io/name": job.name},
        "ports": [{"name": "tasks", "port": _PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(job, job.name), "spec": spec}


def _job_spec(job: KubernetesJob, task_type: str) -> Manifest:
    count = job.num_tasks[task_type]
    num_failures = sum(job.num_tasks.values()) if task_type == "worker" else 1  # where one fails, others fail with it
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": job.max_restarts * num_failures,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "Ignore", "onExitCodes": _exit_codes([os.EX_TEMPFAIL])},
                {"action": "FailJob", "onExitCodes": _exit_codes(_HOPELESS)},
            ]
        },
        "template": _pod(job, task_type),
    }


def _exit_codes(values: Sequence[int]) -> Manifest:
    return {"containerName": "tfdist", "operator": "In", "values": list(values)}


def _pod(job: KubernetesJob, task_type: str) -> Manifest:
    container = _container(job, "tfdist", task_type)
    container["env"] = [
        {"name": kubernetes.TASK_TYPE, "value": task_type},
        {"name": JOB_SECRET, "valueFrom": {"secretKeyRef": {"name": secret_name(job), "key": "secret"}}},
    ]
    container["envFrom"] = [{"configMapRef": {"name": job.name}}]
    container["ports"] = [{"name": "tasks", "containerPort": _PORT}]
    return {"metadata": {"labels": _labels(job)}, "spec": {"subdomain": job.name, **_pod_spec(job, container)}}


def _container(job: KubernetesJob, name: str, task_type: str) -> Manifest:
    resources = job.resources if task_type == "worker" else Resources(job.resources.cpus, job.resources.memory)
    container = {
        "name": name,
        "image": job.image,
        # Kubernetes replaces $(NAME) in a command, and makes $ of $$.
        "command": [word.replace("$", "$$") for word in job.command],
        "resources": resources.to_manifest(),
        "volumeMounts": [{"name": "checkpoints", "mountPath": job.mount_path}],
    }
    if resources.gpus > 1:  # NCCL exchanges between the GPUs of a pod by shared memory, of which Docker gives 64 MB
        container["volumeMounts"].append({"name": "shared-memory", "mountPath": "/dev/shm"})  # type: ignore[attr-defined]
    return {key: value for key, value in container.items() if value}


def _pod_spec(job: KubernetesJob, container: Manifest) -> Manifest:
    claim = job.volume_claim or f"{job.name}-checkpoints"
    volumes: list[Manifest] = [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": claim}}]
    if any(mount["name"] == "shared-memory" for mount in container["volumeMounts"]):
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory"}})
    return {
        "restartPolicy": "Never",  # which a pod failure policy needs
        "terminationGracePeriodSeconds": _GRACE_S,
        "containers": [container],
        "volumes": volumes,
    }


def _job_set(job: KubernetesJob) -> Manifest:
    replicated = [
        {"name": task, "replicas": 1, "template": {"spec": {**_job_spec(job, task), "backoffLimit": 0}}}
        for task in job.num_tasks
    ]
    spec: Manifest = {
        "network": {"enableDNSHostnames": True, "subdomain": job.name, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": job.max_restarts},
        "replicatedJobs": replicated,
    }
    if job.parameter_servers:  # the others have nothing to do when the coordinator has ended
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["chief"]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(job, job.name),
        "spec": spec,
    }


def _tf_job(job: KubernetesJob) -> Manifest:
    secret = {"secretKeyRef": {"name": secret_name(job), "key": "secret"}}

    def replicas(task_type: str, count: int) -> Manifest:
        container = _container(job, "tensorflow", task_type)  # a name by which the operator finds it
        container["env"] = [{"name": JOB_SECRET, "valueFrom": secret}]
        container["ports"] = [{"name": "tfjob-port", "containerPort": _TFJOB_PORT}]
        pod_spec = _pod_spec(job, container)
        del pod_spec["restartPolicy"]  # the replicas' counts
        template = {"metadata": {"labels": _labels(job)}, "spec": pod_spec}
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

    names = {"chief": "Chief", "worker": "Worker", "ps": "PS"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": _metadata(job, job.name),
        "spec": {
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "backoffLimit": job.max_restarts * sum(job.num_tasks.values()),
            },
            "tfReplicaSpecs": {names[task]: replicas(task, count) for task, count in job.num_tasks.items()},
        },
    }


def _present(values: Mapping[str, Any]) -> Manifest:
    return {name: value for name, value in values.items() if value is not None}
