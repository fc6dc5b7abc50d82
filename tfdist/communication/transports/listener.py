"""The port at which the other members of a group connect."""

from __future__ import annotations

import socket

from tfdist.errors import LaunchError, describe_problem

__all__ = ["Listener", "enlarge_buffers", "listen"]

_BACKLOG = 512
_SOCKET_BUFFER_BYTES = 1 << 22


class Listener:
    """A socket at which the other members of a group to be formed can connect.

    Attributes:
        socket: The listening socket.
        port: Its port, chosen by the system.
    """

    def __init__(self, listening: socket.socket) -> None:
        self.socket = listening
        self.port: int = listening.getsockname()[1]

    def close(self) -> None:
        """Stops listening. `form_group` does it, too."""
        self.socket.close()


def listen(host: str) -> Listener:
    """Opens a port for the other members, chosen by the system.

    Args:
        host: The host of this task's address in the cluster description: a name, an IPv4 or an IPv6 address. Where it
            is no address of this machine (as behind a service or a NAT), or a name that means the loopback interface
            here and another elsewhere (as a machine's own name in some /etc/hosts), the port is opened on all
            interfaces.

    Raises:
        LaunchError: When the system gives no port.
    """
    bare = host.removeprefix("[").removesuffix("]")
    problem: OSError | None = None
    places: list[tuple[socket.AddressFamily, tuple[str, int]]] = []
    try:
        for family, _, _, _, address in socket.getaddrinfo(bare, 0, type=socket.SOCK_STREAM):
            where = str(address[0])
            is_trap = _is_loopback(where) and not _is_loopback(bare) and bare != "localhost"
            places.append((family, (_any(family) if is_trap else where, 0)))
        places += [(family, (_any(family), 0)) for family, _ in places]
    except OSError as error:
        problem = error
    for kind, place in places:
        listening = socket.socket(kind, socket.SOCK_STREAM)
        try:
            enlarge_buffers(listening)  # accepted sockets take over the sizes, which must be known before they connect
            listening.bind(place)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
            return Listener(listening)
        except OSError as error:
            listening.close()
            problem = error
    raise LaunchError(
        describe_problem(
            "No port can be opened for the exchange between workers",
            received=f"host={host} (of this task's address in the cluster description): {problem}",
            expected="a name or an address of this machine",
            fix="correct this task's address in the cluster description",
        )
    )


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _any(family: socket.AddressFamily) -> str:
    return "::" if family == socket.AF_INET6 else "0.0.0.0"


def enlarge_buffers(connection: socket.socket) -> None:
    """Sets large buffers if the system allows them; if not, its own growing ones are the larger ones."""
    for option, name in ((socket.SO_SNDBUF, "wmem_max"), (socket.SO_RCVBUF, "rmem_max")):
        try:
            with open(f"/proc/sys/net/core/{name}", encoding="ascii") as file:
                largest = int(file.read())
        except (OSError, ValueError):
            continue
        if largest >= _SOCKET_BUFFER_BYTES:
            connection.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
