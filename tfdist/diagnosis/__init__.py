"""What would go wrong in a job on these nodes: the facts of each node, compared. Behind `tfdist doctor`.

Pure: `facts`, `findings`, `comparison`, `agreement`, `reachability`, `conditions`, `report`. The others gather:
`local_facts` on this node, `session` from the other nodes. [docs/design/doctor.md](../../docs/design/doctor.md)
describes it. Loads no TensorFlow; `session` loads the transports' handshake, and NumPy with it.
"""
