"""Free ports on the loopback interface."""

from __future__ import annotations

import contextlib
import socket


def choose_free_ports(count: int) -> tuple[int, ...]:
    """Lets the system choose `count` different free TCP ports on 127.0.0.1.

    All sockets are held open together, so that the ports differ. They are closed here, just before the tasks start:
    TensorFlow opens its port itself and cannot be given a socket. In between, another program may take a port. The
    system hands out ephemeral ports in an order that makes this rare, and the task that then cannot bind its port fails
    with an error that names it, so that the job ends and can be started again.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return tuple(int(opened.getsockname()[1]) for opened in sockets)
