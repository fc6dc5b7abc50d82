"""The rules that a cluster description obeys, all checked before one error lists what is wrong.

The description is what TF_CONFIG holds: `{"cluster": {type: [address, ...]}, "task": {"type": ..., "index": ...}}`.
TensorFlow ignores other keys ("environment", "rpc_layer", "job"), and so does tfdist. TensorFlow 2.21 accepts more
than is accepted here (`int("1")` as an index, a list of lists as addresses); what is refused here trains nowhere or
trains something else than was meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tfdist.cluster.address import check_address
from tfdist.cluster.problems import Problems

TASK_TYPES = ("chief", "worker", "ps", "evaluator")
_TASK_TYPES_TEXT = "one of chief, worker, ps, evaluator (or master, the TensorFlow 1 name of chief)"
_SINGLE_TASK_TYPES = ("chief", "evaluator")
_EXAMPLE = '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}'

Cluster = dict[str, tuple[str, ...]]


def parse_json(text: str, source: str) -> object:
    """Reads JSON strictly: a key that occurs twice in one object is a problem, not a silent loss.

    Raises:
        ClusterConfigError: The text is not JSON, or a key occurs twice.
    """
    problems = Problems(source)

    def build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        for key in sorted({key for key in keys if keys.count(key) > 1}):
            problems.add(
                "A key occurs more than once in one JSON object",
                name="key",
                value=key,
                expected="every key once",
                fix="merge the entries, so that none is lost",
            )
        return dict(pairs)

    value: object = None
    try:
        value = json.loads(text, object_pairs_hook=build_object)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        problems.add(
            f"The cluster description is not JSON: {reason}",
            name="text",
            value=text,
            expected=f"a JSON object such as {_EXAMPLE}",
            fix="write it with json.dumps, or unset it to train on this machine alone",
        )
    problems.raise_if_any()
    return value


def check_description(description: object, source: str) -> tuple[Cluster, str | None, int | None]:
    """Checks a whole description.

    Args:
        description: What was received, of any type.
        source: Where it came from, for the message.

    Returns:
        The cluster (empty for local training), the task type and the task id (both None for local training). The
        TensorFlow 1 name `master` has become `chief`.

    Raises:
        ClusterConfigError: The description breaks a rule. The message lists every rule that it breaks.
    """
    problems = Problems(source)
    if not isinstance(description, Mapping):
        problems.add(
            "The cluster description is not an object",
            name="description",
            value=description,
            expected=f"an object such as {_EXAMPLE}",
            fix="give an object with the keys cluster and task",
        )
        problems.raise_if_any()
        return {}, None, None
    cluster = _check_cluster(description.get("cluster"), problems)
    task = description.get("task")
    if cluster or problems:
        task_type, task_id = _check_task(task, cluster, problems)
    else:
        task_type, task_id = None, None
        if task is not None and task != {}:
            problems.add(
                "There is a task but no cluster, so it is unknown with whom to train",
                name="task",
                value=task,
                expected="both cluster and task, or neither",
                fix="add the cluster, or remove the task to train on this machine alone",
            )
    problems.raise_if_any()
    return cluster, task_type, task_id


def _check_cluster(received: object, problems: Problems) -> Cluster:
    if received is None:
        return {}
    if not isinstance(received, Mapping):
        problems.add(
            "The cluster is not an object",
            name="cluster",
            value=received,
            expected="an object that maps task types to lists of addresses",
            fix='write it as {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}',
        )
        return {}
    cluster: Cluster = {}
    owner_of: dict[tuple[str, int], str] = {}
    for received_type, addresses in received.items():
        task_type = "chief" if received_type == "master" else received_type
        if task_type not in TASK_TYPES:
            problems.add(
                "The cluster has an unknown task type",
                name="cluster key",
                value=received_type,
                expected=_TASK_TYPES_TEXT,
                fix="rename or remove it",
            )
            continue
        if not isinstance(addresses, (list, tuple)) or not addresses:
            problems.add(
                f"The tasks of type {received_type} are not a list of addresses",
                name=f"cluster.{received_type}",
                value=addresses,
                expected='a list with at least one address, such as ["10.0.0.1:2222"]',
                fix="list the addresses, or remove the key",
            )
            continue
        for index, address in enumerate(addresses):
            name = f"cluster.{received_type}[{index}]"
            endpoint = check_address(name, address, problems)
            if endpoint is not None and endpoint in owner_of:
                problems.add(
                    f"Two tasks have the same address, {owner_of[endpoint]} and {name}",
                    name=name,
                    value=address,
                    expected="a different address for every task",
                    fix="give one of them another port or host",
                )
            elif endpoint is not None:
                owner_of[endpoint] = name
        if task_type not in cluster:  # chief and master together are reported below
            cluster[task_type] = tuple(addresses)
    _check_roles(received, cluster, problems)
    return cluster


def _check_roles(received: Mapping[object, object], cluster: Cluster, problems: Problems) -> None:
    def reject(what: str, expected: str, fix: str) -> None:
        problems.add(what, name="cluster", value=dict(received), expected=expected, fix=fix)

    if "chief" in received and "master" in received:
        reject(
            "The cluster has both a chief and a master", "one of them: master is the old name of chief", "keep chief"
        )
    for task_type in _SINGLE_TASK_TYPES:
        if len(cluster.get(task_type, ())) > 1:
            reject(f"The cluster has more than one {task_type}", f"at most one {task_type}", "keep one of them")
    if "ps" in cluster and not {"chief", "worker"} <= set(cluster):
        missing = " and ".join(task_type for task_type in ("chief", "worker") if task_type not in cluster)
        reject(
            f"The cluster has parameter servers (ps) but no {missing}",
            "one chief, which coordinates, at least one worker and at least one ps",
            f"add {missing}, or remove ps",
        )
    elif cluster and not {"chief", "worker"} & set(cluster):
        reject("No task of the cluster trains", "a chief or at least one worker", "add the training tasks")


def _check_task(received: object, cluster: Cluster, problems: Problems) -> tuple[str | None, int | None]:
    if received is None or received == {}:
        problems.add(
            "There is a cluster but no task, so it is unknown which of its tasks this process is",
            name="task",
            value=received,
            expected='an object such as {"type": "worker", "index": 0}',
            fix="give each process its own task",
        )
        return None, None
    if not isinstance(received, Mapping):
        problems.add(
            "The task is not an object",
            name="task",
            value=received,
            expected='an object such as {"type": "worker", "index": 0}',
            fix="give each process its own task",
        )
        return None, None
    return _check_task_type(received, cluster, problems), _check_task_id(received, cluster, problems)


def _check_task_type(task: Mapping[object, object], cluster: Cluster, problems: Problems) -> str | None:
    received = task.get("type")
    task_type = "chief" if received == "master" else received
    if not isinstance(task_type, str) or task_type not in TASK_TYPES:
        problems.add(
            "The task has no type" if received is None else "The task has an unknown type",
            name="task.type",
            value=received,
            expected=_TASK_TYPES_TEXT,
            fix="set the type of the task that this process is",
        )
        return None
    if cluster and task_type not in cluster and task_type != "evaluator":
        problems.add(
            f"This process is a {received}, but the cluster lists none",
            name="task.type",
            value=received,
            expected=f"a task type that the cluster lists: {', '.join(cluster)} (or evaluator)",
            fix=f"add the {received} to the cluster, or correct the task's type",
        )
        return None
    return task_type


def _check_task_id(task: Mapping[object, object], cluster: Cluster, problems: Problems) -> int | None:
    received, received_type = task.get("index"), task.get("type")
    if not isinstance(received, int) or isinstance(received, bool) or received < 0:
        hint = f"write {received} without quotes" if isinstance(received, str) and received.isdigit() else None
        problems.add(
            "The task has no index" if received is None else "The task's index is not a whole number from 0",
            name="task.index",
            value=received,
            expected="a whole number from 0, as a JSON number",
            fix=hint or "set the index that this process has in its list; 0 is never assumed",
        )
        return None
    task_type = "chief" if received_type == "master" else received_type
    addresses = cluster.get(task_type, ()) if isinstance(task_type, str) else ()
    if addresses and received >= len(addresses):
        problems.add(
            f"The task's index is out of range: the cluster has {len(addresses)} of type {received_type}",
            name="task.index",
            value=received,
            expected=f"a number from 0 to {len(addresses) - 1}",
            fix="correct the index, or add the missing address to the cluster",
        )
        return None
    return received
