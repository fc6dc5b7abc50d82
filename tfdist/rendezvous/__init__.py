"""Who takes part in an elastic job: the service that decides it, and how a process asks. No TensorFlow, no NumPy.

`membership` is the pure rule, `server` the service that the launcher hosts, `client` a process's side of it.
[docs/design/elastic.md](../../docs/design/elastic.md) has the protocol.
"""
