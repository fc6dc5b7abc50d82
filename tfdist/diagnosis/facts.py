"""What a node says about itself and about the others, as it travels between nodes. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Link", "NodeFacts", "NodeReport", "Observations", "PortState", "Status", "checked_tasks", "read_report"]

Cluster = Mapping[str, tuple[str, ...]]


class Status:
    """How far an attempt to reach a task came. The last one at the time limit is what is reported."""

    RESOLVING = "resolving"  # the name service has not answered
    UNRESOLVED = "unresolved"  # the name service does not know the name
    CONNECTING = "connecting"  # nothing came back, not even a refusal: what a firewall that drops does
    REFUSED = "refused"  # the machine says that nothing listens there
    UNREACHABLE = "unreachable"  # the network says that there is no way
    SILENT = "silent"  # something accepts the connection, and says nothing
    STRANGER = "stranger"  # something answers that is no doctor
    SECRET = "secret"  # a doctor with another secret
    LOST = "lost"  # a doctor that broke off, or did not answer in time
    WRONG_TASK = "wrong task"  # a doctor, of another task than the address is listed for
    REACHED = "reached"


class PortState:
    """Whether a node could open the port of its task."""

    OPEN = "open"
    TAKEN = "taken"
    DENIED = "denied"
    FAILED = "failed"
    NONE = "none"  # a task that is in no list, as an evaluator, has no port


@dataclass(frozen=True)
class NodeFacts:
    """What a node knows about itself at once.

    Attributes:
        token: Random, unique for this run of the doctor on this node.
        task: Its task in words, such as `worker 1`.
        host: The name of its machine.
        host_id: The same for all tasks under one kernel.
        cluster: From task type to the addresses of its tasks, as this node was told.
        versions: From package (and `python`) to its version; None for one that is not installed.
        script: The path of the script, as given; None if none was.
        script_digest: SHA-256 of its contents; empty if it cannot be read.
        script_problem: Why it cannot be read.
        checkpoint_dir: The directory for checkpoints, as given; None if none was.
        open_files: The soft limit of open files of a process (RLIMIT_NOFILE); -1 for none.
        open_files_hard: The hard limit.
        cpus: The numbers of the cores that this process may use.
        cpu_quota: How many cores its control group may use at a time; None without a limit.
        gpus: The models of the GPUs that the driver shows to this process.
        port_state: Whether its port could be opened; of `PortState`.
        port_detail: What the system said, and who holds the port.
    """

    token: str
    task: str = ""
    host: str = ""
    host_id: str = ""
    cluster: Cluster = field(default_factory=dict)
    versions: Mapping[str, str | None] = field(default_factory=dict)
    script: str | None = None
    script_digest: str = ""
    script_problem: str = ""
    checkpoint_dir: str | None = None
    open_files: int = -1
    open_files_hard: int = -1
    cpus: tuple[int, ...] = ()
    cpu_quota: float | None = None
    gpus: tuple[str, ...] = ()
    port_state: str = PortState.OPEN
    port_detail: str = ""

    @property
    def name(self) -> str:
        """The node in findings: its task and its machine."""
        return f"{self.task} ({self.host})"

    @property
    def task_type(self) -> str:
        """Its task's type."""
        return self.task.partition(" ")[0]

    @property
    def address(self) -> str:
        """The address of its task in its own cluster description; empty if it has none."""
        return addresses_of(self.cluster).get(self.task, "")


@dataclass(frozen=True)
class Link:
    """What a node found at the address of a task.

    Attributes:
        task: The task, in words.
        address: Where it looked.
        status: Of `Status`.
        detail: What the system or the other side said.
        peer: The token of the node that answered; empty if none did.
        latency_s: The shortest round trip of a message, in seconds; None if none was made.
        offset_s: The clock there minus the clock here, in seconds, from the shortest round trip.
        bandwidth_bytes_s: What went there, in bytes per second; None if it was not measured.
    """

    task: str
    address: str = ""
    status: str = Status.RESOLVING
    detail: str = ""
    peer: str = ""
    latency_s: float | None = None
    offset_s: float | None = None
    bandwidth_bytes_s: float | None = None


@dataclass(frozen=True)
class Observations:
    """What a node knows when it has looked at the others.

    Attributes:
        links: One for each task of its cluster, its own included.
        address_is_local: Whether the host of its address is an address of this machine; True if that is not known.
        seen_in_checkpoint_dir: The tokens of the other nodes whose files it found there.
        checkpoint_problem: Why it cannot use that directory; empty if it can.
        devices: How many devices of each type TensorFlow shows; None if it was not asked.
        devices_problem: Why TensorFlow could not be asked; empty if it could.
    """

    links: tuple[Link, ...] = ()
    address_is_local: bool = True
    seen_in_checkpoint_dir: tuple[str, ...] = ()
    checkpoint_problem: str = ""
    devices: Mapping[str, int] | None = None
    devices_problem: str = ""


@dataclass(frozen=True)
class NodeReport:
    """What is known about and from a node; without observations if it did not send them in time."""

    facts: NodeFacts
    observations: Observations | None = None


def addresses_of(cluster: Cluster) -> dict[str, str]:
    """From task in words to address, in the order of the description."""
    names: dict[str, str] = {}
    for task_type, addresses in cluster.items():
        for index, address in enumerate(addresses):
            names[task_type if task_type in ("chief", "evaluator") else f"{task_type} {index}"] = address
    return names


def checked_tasks(reports: list[NodeReport]) -> list[str]:
    """All tasks that any description or node names, in order."""
    tasks: dict[str, None] = {}
    for report in reports:
        tasks.update(dict.fromkeys(addresses_of(report.facts.cluster)))
    tasks.update(dict.fromkeys(report.facts.task for report in reports))
    return list(tasks)


def read_facts(value: Mapping[str, Any]) -> NodeFacts:
    """From JSON. What another version of the doctor adds is left out, and what it lacks has its default.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: It is no such thing.
    """
    known = _known(NodeFacts, value)
    known["cluster"] = {str(key): tuple(map(str, found)) for key, found in dict(known.get("cluster", {})).items()}
    known["versions"] = {str(k): None if v is None else str(v) for k, v in dict(known.get("versions", {})).items()}
    known["cpus"] = tuple(map(int, known.get("cpus", ())))
    known["gpus"] = tuple(map(str, known.get("gpus", ())))
    return NodeFacts(**known)


def read_observations(value: Mapping[str, Any]) -> Observations:
    """From JSON, as `read_facts`."""
    known = _known(Observations, value)
    known["links"] = tuple(Link(**_known(Link, link)) for link in known.get("links", ()))
    known["seen_in_checkpoint_dir"] = tuple(map(str, known.get("seen_in_checkpoint_dir", ())))
    if known.get("devices") is not None:
        known["devices"] = {str(kind): int(count) for kind, count in known["devices"].items()}
    return Observations(**known)


def read_report(value: Mapping[str, Any]) -> NodeReport:
    """From JSON, as `read_facts`."""
    observed = value.get("observations")
    return NodeReport(read_facts(value["facts"]), None if observed is None else read_observations(observed))


def _known(kind: type, value: Mapping[str, Any]) -> dict[str, Any]:
    names = {entry.name for entry in dataclasses.fields(kind)}
    return {name: found for name, found in value.items() if name in names}
