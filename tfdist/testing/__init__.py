"""Support for tests: real clusters of local processes. No production code imports it."""

from tfdist.testing.local_cluster import LocalCluster, TaskResult

__all__ = ["LocalCluster", "TaskResult"]
