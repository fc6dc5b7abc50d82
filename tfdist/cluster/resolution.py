"""Which of several possible descriptions of the cluster counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfdist.cluster.config import ClusterConfig
from tfdist.errors import ClusterConfigError, describe_problem

ExplicitCluster = ClusterConfig | Mapping[str, Any] | str | None

#: Asked in this order when there is neither an argument nor a TF_CONFIG. A detector gets the environment and returns a
#: description, or None if it does not recognise its platform.
PLATFORM_DETECTORS: tuple[Callable[[Mapping[str, str]], ClusterConfig | None], ...] = ()


def resolve_cluster(explicit: ExplicitCluster, env: Mapping[str, str]) -> ClusterConfig:
    """Finds the cluster: an explicit argument, else TF_CONFIG, else a detected platform, else local training.

    Args:
        explicit: A description, as a `ClusterConfig`, as a mapping like the contents of TF_CONFIG, or as its JSON text.
        env: The environment variables.

    Returns:
        The description; its `source` says where it came from.

    Raises:
        ClusterConfigError: A description breaks a rule, or the argument and TF_CONFIG disagree.
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
        return argument
    if not tf_config.is_local:
        return tf_config
    for detect in PLATFORM_DETECTORS:
        detected = detect(env)
        if detected is not None:
            return detected
    return ClusterConfig.local()


def _read_explicit(explicit: ExplicitCluster) -> ClusterConfig | None:
    if explicit is None or isinstance(explicit, ClusterConfig):
        return explicit
    if isinstance(explicit, str):
        return ClusterConfig.from_tf_config(explicit, source="argument")
    return ClusterConfig.from_mapping(explicit)
