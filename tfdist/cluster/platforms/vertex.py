"""Vertex AI's custom training jobs. Pure. Where it or AI Platform sets TF_CONFIG, too, that goes first.

By "Distributed training" of Vertex AI's documentation: `CLUSTER_SPEC` has the pools of workers, of which the first has
the chief, the third the parameter servers, the fourth the evaluator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfdist.cluster.platforms.reading import Found
from tfdist.errors import ClusterConfigError, describe_problem

__all__ = ["detect_vertex"]

_TYPE_OF = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}


def detect_vertex(env: Mapping[str, str]) -> Found | None:
    """Finds the tasks of this one's job.

    Returns:
        None outside of a job, and in one of a single task.

    Raises:
        ClusterConfigError: The variable cannot be read.
    """
    text = env.get("CLUSTER_SPEC", "")
    if not text.strip():
        return None
    try:
        pools, task = _read(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterConfigError(
            describe_problem(
                "Vertex AI's description of the cluster cannot be read",
                received=f"CLUSTER_SPEC={text[:300]!r} (from the environment; {type(error).__name__}: {error})",
                expected="JSON with cluster.workerpool0 to workerpool3 and task.type and task.index",
                fix="Unset CLUSTER_SPEC if it is not Vertex AI's, or set TF_CONFIG, which goes first.",
            )
        ) from error
    size = sum(map(len, pools.values()))
    if size == 1:
        return None
    order = [(kind, index) for kind, addresses in pools.items() for index in range(len(addresses))]
    rank = order.index(task) if task in order else size
    return Found("CLUSTER_SPEC", rank, size, pools, *task)


def _read(spec: Any) -> tuple[dict[str, list[str]], tuple[str, int]]:
    pools = {_TYPE_OF[pool]: list(addresses) for pool, addresses in sorted(spec["cluster"].items()) if addresses}
    return pools, (_TYPE_OF[spec["task"]["type"]], int(spec["task"]["index"]))
