"""How replicas exchange tensors during a step.

May import the pure packages and TensorFlow. The seam is `Exchange`, which sums tensors over all replicas.
"""

from tfdist.communication.exchange import CollectiveExchange, Exchange
from tfdist.communication.peers import missing_peers, wait_for_peers

__all__ = ["CollectiveExchange", "Exchange", "missing_peers", "wait_for_peers"]
