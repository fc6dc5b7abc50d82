"""What this process's environment says about the cluster. The pure rules are in `tfdist.cluster`."""

from __future__ import annotations

import os

from tfdist.cluster import ClusterConfig, resolve_cluster
from tfdist.cluster.resolution import ExplicitCluster


def cluster_config(explicit: ExplicitCluster = None) -> ClusterConfig:
    """The cluster that this process belongs to, and its task in it.

    Precedence: the argument, TF_CONFIG, a detected platform, local training. Not collective: it only reads the
    environment and may be called anywhere, as often as wanted.

    Args:
        explicit: A description to use instead of the environment's: a `ClusterConfig`, a mapping like the contents of
            TF_CONFIG, or its JSON text.

    Returns:
        The description; its `source` says where it came from.

    Raises:
        ClusterConfigError: A description breaks a rule, or the argument and TF_CONFIG disagree. The message lists
            every problem.

    Example:
        >>> workers = ["10.0.0.1:2222", "10.0.0.2:2222"]
        >>> config = cluster_config({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 1}})
        >>> config.task_name, config.num_workers, config.is_chief, config.source
        ('worker 1', 2, False, 'argument')
    """
    return resolve_cluster(explicit, os.environ)
