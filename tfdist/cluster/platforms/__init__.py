"""The platforms whose environment variables describe a cluster, a file each. Pure.

A detector gets the environment, and returns what it found, or None where its platform is not. A platform that is there
in part only is an error that names what is missing, never a guess.
"""

from tfdist.cluster.platforms.detection import Detection, detect_platform

__all__ = ["Detection", "detect_platform"]
