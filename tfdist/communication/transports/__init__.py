"""The exchange of NumPy buffers between worker processes. Loads NumPy and the standard library only.

`form_group` connects the members of a group; the `Transport` that it returns sums and gathers arrays over them.
[docs/design/transports.md](../../../docs/design/transports.md) describes the algorithms, the costs and the limits.
"""

from tfdist.communication.transports.formation import form_group
from tfdist.communication.transports.interface import TimeLimit, Transport, TransportClosedError
from tfdist.communication.transports.listener import Listener, listen
from tfdist.communication.transports.tcp import TcpTransport

__all__ = ["Listener", "TcpTransport", "TimeLimit", "Transport", "TransportClosedError", "form_group", "listen"]
