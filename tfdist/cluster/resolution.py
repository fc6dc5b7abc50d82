"""Which of several possible descriptions of the cluster counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfdist.cluster.config import ClusterConfig
from tfdist.cluster.job_environment import parse_job_environment
from tfdist.cluster.platforms import Detection, detect_platform
from tfdist.errors import ClusterConfigError, describe_problem

ExplicitCluster = ClusterConfig | Mapping[str, Any] | str | None


def resolve_cluster(explicit: ExplicitCluster, env: Mapping[str, str]) -> ClusterConfig:
    """Finds the cluster: an explicit argument, else TF_CONFIG, else a detected platform, else local training.

    A platform is not looked for in a process that `tfdist run` has started: its launcher may be what the platform runs.

    Args:
        explicit: A description, as a `ClusterConfig`, as a mapping like the contents of TF_CONFIG, or as its JSON text.
        env: The environment variables.

    Returns:
        The description; its `source` says where it came from, and which platform does not count beside it.

    Raises:
        ClusterConfigError: A description breaks a rule, the argument and TF_CONFIG disagree, or, without both, a
            platform's description is incomplete.
    """
    argument = _read_explicit(explicit)
    tf_config = ClusterConfig.from_tf_config(env.get("TF_CONFIG", ""))
    if argument is not None and not tf_config.is_local and argument != tf_config:
        raise ClusterConfigError(
            describe_problem(
                "The cluster given as an argument and the one in TF_CONFIG disagree",
                received=f"argument={argument.to_tf_config()} (from the call), "
                f"TF_CONFIG={tf_config.to_tf_config()} (from the environment)",
                expected="one description of the cluster, or two that are equal",
                fix="remove the argument, or unset TF_CONFIG",
            )
        )
    if argument is not None:
        return _beside_platform(argument, env)
    if not tf_config.is_local:
        return _beside_platform(tf_config, env)
    detected = _detect(env)
    return ClusterConfig.local() if detected is None else detected.cluster


def _detect(env: Mapping[str, str]) -> Detection | None:
    return None if parse_job_environment(env) is not None else detect_platform(env)


def _beside_platform(config: ClusterConfig, env: Mapping[str, str]) -> ClusterConfig:
    """Says in the source that a platform is there as well, and does not count; one that cannot be read is no matter."""
    try:
        detected = _detect(env)
    except ClusterConfigError:
        return config
    if detected is None or detected.cluster == config:
        return config
    source = f"{config.source}, which goes before {detected.platform} ({detected.evidence})"
    return dataclasses.replace(config, source=source)


def _read_explicit(explicit: ExplicitCluster) -> ClusterConfig | None:
    if explicit is None or isinstance(explicit, ClusterConfig):
        return explicit
    if isinstance(explicit, str):
        return ClusterConfig.from_tf_config(explicit, source="argument")
    return ClusterConfig.from_mapping(explicit)
