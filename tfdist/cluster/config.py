"""`ClusterConfig`: the one description of a cluster that the rest of tfdist works with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tfdist.cluster.validation import check_description, parse_json


@dataclass(frozen=True)
class ClusterConfig:
    """A cluster and this process's place in it. Valid by construction, immutable, hashable, picklable.

    Two descriptions are equal if they describe the same cluster and task, wherever they came from.

    Attributes:
        cluster: From task type (chief, worker, ps, evaluator) to the addresses of its tasks; empty for local training.
        task_type: This process's task type; None for local training.
        task_id: This process's index in its list; None for local training.
        source: Where the description came from, in words, such as `TF_CONFIG`.

    Raises:
        ClusterConfigError: The description breaks a rule; the message lists every rule that it breaks.

    Example:
        >>> config = ClusterConfig({"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, "ps", 0, "my script")
        >>> config.has_parameter_servers, config.num_workers, config.worker_index
        (True, 2, None)
        >>> ClusterConfig.from_tf_config(config.to_tf_config()) == config
        True
    """

    cluster: Mapping[str, tuple[str, ...]]
    task_type: str | None
    task_id: int | None
    source: str = field(compare=False)

    def __post_init__(self) -> None:
        description: dict[str, object] = {"cluster": self.cluster}
        if self.task_type is not None or self.task_id is not None:
            description["task"] = {"type": self.task_type, "index": self.task_id}
        cluster, task_type, task_id = check_description(description, self.source)
        object.__setattr__(self, "cluster", MappingProxyType(cluster))
        object.__setattr__(self, "task_type", task_type)
        object.__setattr__(self, "task_id", task_id)

    def __hash__(self) -> int:
        return hash((frozenset(self.cluster.items()), self.task_type, self.task_id))

    def __reduce__(self) -> tuple[Callable[..., ClusterConfig], tuple[Any, ...]]:
        return ClusterConfig, (dict(self.cluster), self.task_type, self.task_id, self.source)

    @classmethod
    def local(cls) -> ClusterConfig:
        """Training in this process alone."""
        return cls({}, None, None, "local")

    @classmethod
    def from_mapping(cls, description: Mapping[str, Any], source: str = "argument") -> ClusterConfig:
        """From the contents of a TF_CONFIG as a mapping, with the keys `cluster` and `task`.

        Args:
            description: The mapping. Other keys are ignored, as TensorFlow does. An empty one means local training.
            source: Where it came from, for messages.

        Returns:
            The description.

        Raises:
            ClusterConfigError: The description breaks a rule; the message lists every rule that it breaks.
        """
        cluster, task_type, task_id = check_description(description, source)
        return cls(cluster, task_type, task_id, source)

    @classmethod
    def from_tf_config(cls, text: str, source: str = "TF_CONFIG") -> ClusterConfig:
        """From the text of a TF_CONFIG. Blank text means local training, as for TensorFlow.

        Args:
            text: JSON.
            source: Where it came from, for messages.

        Returns:
            The description.

        Raises:
            ClusterConfigError: The text is not JSON or the description breaks a rule; the message lists every problem.
        """
        if not text.strip():
            return cls({}, None, None, source)
        cluster, task_type, task_id = check_description(parse_json(text, source), source)
        return cls(cluster, task_type, task_id, source)

    @property
    def is_local(self) -> bool:
        """Whether this process trains alone because no cluster was described."""
        return not self.cluster

    @property
    def has_parameter_servers(self) -> bool:
        """Whether the cluster is one for parameter-server training."""
        return "ps" in self.cluster

    @property
    def worker_addresses(self) -> tuple[str, ...]:
        """The addresses of the training workers, in TensorFlow's order: the chief, then the workers.

        In a parameter-server cluster the chief coordinates and is not among them. Empty for local training.
        """
        workers = self.cluster.get("worker", ())
        return workers if self.has_parameter_servers else self.cluster.get("chief", ()) + workers

    @property
    def worker_names(self) -> tuple[str, ...]:
        """The training workers in words, such as `worker 1`, in the order of `worker_addresses`."""
        jobs = ("worker",) if self.has_parameter_servers else ("chief", "worker")
        return tuple(name_task(job, i) for job in jobs for i in range(len(self.cluster.get(job, ()))))

    @property
    def num_workers(self) -> int:
        """How many processes train; 1 for local training."""
        return 1 if self.is_local else len(self.worker_addresses)

    @property
    def worker_index(self) -> int | None:
        """This process's index in `worker_addresses`; 0 for local training; None if it is not a training worker."""
        if self.is_local:
            return 0
        if self.task_type == "worker":
            assert self.task_id is not None  # every task in a cluster has an index, or it would not be valid
            has_chief_worker = "chief" in self.cluster and not self.has_parameter_servers
            return self.task_id + (1 if has_chief_worker else 0)
        return 0 if self.task_type == "chief" and not self.has_parameter_servers else None

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes what is written once.

        That is the `chief` task, or worker 0 if there is none; in a parameter-server cluster, the coordinator; in local
        training, this process. Never a parameter server or an evaluator.
        """
        if self.is_local or self.task_type == "chief":
            return True
        return "chief" not in self.cluster and self.task_type == "worker" and self.task_id == 0

    @property
    def task_name(self) -> str:
        """The task in words: `chief`, `worker 1`, `ps 0`, `evaluator`; `this process` for local training."""
        if self.is_local:
            return "this process"
        return name_task(str(self.task_type), int(self.task_id or 0))

    def to_tf_config(self) -> str:
        """The JSON that gives TensorFlow, and `from_tf_config`, this same cluster and task."""
        if self.is_local:
            return "{}"
        description = {"cluster": dict(self.cluster), "task": {"type": self.task_type, "index": self.task_id}}
        return json.dumps(description)


def name_task(task_type: str, task_id: int) -> str:
    """A task in words: `worker 1`, but `chief` and `evaluator`, of which there is one."""
    return task_type if task_type in ("chief", "evaluator") else f"{task_type} {task_id}"
