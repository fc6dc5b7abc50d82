"""How replicas exchange tensors during a step.

May import the pure packages and TensorFlow. The seam is `Exchange`, which sums tensors over all replicas: on
TensorFlow's collectives, or on one of the `transports` between processes.
"""

from tfdist.communication.exchange import CollectiveExchange, Exchange
from tfdist.communication.peers import missing_peers, wait_for_peers
from tfdist.communication.transport_exchange import TransportExchange

__all__ = ["CollectiveExchange", "Exchange", "TransportExchange", "missing_peers", "wait_for_peers"]
