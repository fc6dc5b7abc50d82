"""How replicas exchange tensors during a step.

May import the pure packages and TensorFlow. There is one transport so far, TensorFlow's own collectives; the seam is
`all_reduce_sum`.
"""

from tfdist.communication.collective import all_reduce_sum
from tfdist.communication.peers import missing_peers, wait_for_peers

__all__ = ["all_reduce_sum", "missing_peers", "wait_for_peers"]
