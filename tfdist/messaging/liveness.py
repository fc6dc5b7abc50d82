"""Lets the kernel notice that nothing comes back from the other side's machine, while nobody has anything to say."""

from __future__ import annotations

import errno
import math
import socket

__all__ = ["UNREACHABLE", "watch_connection"]

#: What a read of a watched connection raises, once its machine has not answered.
UNREACHABLE = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_NUM_PROBES = 4


def watch_connection(connected: socket.socket, limit_s: float) -> None:
    """Makes an idle connection fail when the other machine has not answered for a time.

    The kernels ask and answer (TCP keepalive), so a process that is stopped or computes for long still answers. Only
    for connections on which next to nothing is sent: data under way that nobody confirms has a limit of the system's
    own, of about 15 minutes.

    Args:
        connected: The connection.
        limit_s: How long, in seconds; at least 5, as the system counts whole seconds.
    """
    interval_s = max(1, math.floor(limit_s / (_NUM_PROBES + 2)))
    idle_s = max(1, round(limit_s) - _NUM_PROBES * interval_s)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", idle_s), ("TCP_KEEPINTVL", interval_s), ("TCP_KEEPCNT", _NUM_PROBES)):
        option = getattr(socket, name, None)  # some systems lack some of them, and keep their own times
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
