"""What a cluster is, and which of its tasks this process is.

Pure: standard library only; the environment is passed in, nothing here reads it, a clock or a disk.
"""

from tfdist.cluster.config import ClusterConfig
from tfdist.cluster.resolution import resolve_cluster

__all__ = ["ClusterConfig", "resolve_cluster"]
