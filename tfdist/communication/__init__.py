"""How replicas exchange tensors during a step.

May import the pure packages and TensorFlow; `transports` loads NumPy only, and so this file imports nothing. The seam
is `exchange.Exchange`, which sums tensors over all replicas: on TensorFlow's collectives, or on one of the transports
between processes (`transport_exchange`). `peers` says which tasks answer.
"""
