"""Amazon SageMaker's training jobs. Pure.

By the variables of its training toolkit (github.com/aws/sagemaker-training-toolkit, ENVIRONMENT_VARIABLES.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tfdist.cluster.platforms.reading import Found, base_port, need, workers_found
from tfdist.errors import ClusterConfigError, describe_problem

__all__ = ["detect_sagemaker"]


def detect_sagemaker(env: Mapping[str, str]) -> Found | None:
    """Finds the hosts of this one's training job, one worker each.

    Returns:
        None outside of a training job, and in one of a single host.

    Raises:
        ClusterConfigError: A variable is missing or cannot be read.
    """
    if "SM_HOSTS" not in env and "SM_CURRENT_HOST" not in env:
        return None
    missing = [name for name in ("SM_HOSTS", "SM_CURRENT_HOST") if not env.get(name)]
    if missing:
        raise need("SageMaker", missing, env)
    try:
        hosts = json.loads(env["SM_HOSTS"])
    except ValueError:
        hosts = None
    current = env["SM_CURRENT_HOST"]
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts) or current not in hosts:
        raise ClusterConfigError(
            describe_problem(
                "SageMaker's list of hosts cannot be used",
                received=f"SM_HOSTS={env['SM_HOSTS'][:300]!r}, SM_CURRENT_HOST={current!r} (from the environment)",
                expected="a list of names as JSON, with the current one in it",
                fix="Start the script by SageMaker's training toolkit, or set TF_CONFIG, which goes first.",
            )
        )
    if len(hosts) == 1:
        return None
    ordered = sorted(hosts)  # the same on all hosts
    port = base_port(env, "", 1)
    return workers_found("SM_HOSTS, SM_CURRENT_HOST", ordered.index(current), [f"{host}:{port}" for host in ordered])
