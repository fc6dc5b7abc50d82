"""The port of this node's task: opened as TensorFlow would open it, or why it cannot be."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

from tfdist.cluster.address import is_loopback, split_address
from tfdist.diagnosis.facts import PortState

__all__ = ["address_is_local", "open_port"]

_BACKLOG = 512
_LISTEN_STATE = "0A"  # TCP_LISTEN in /proc/net/tcp


def open_port(address: str) -> tuple[socket.socket | None, str, str]:
    """Listens at the port of an address: on all interfaces, as TensorFlow's server does, or for loopback on that.

    Returns:
        The socket or None, the state (of `PortState`), and what the system said.
    """
    host, port = split_address(address)
    places: list[tuple[socket.AddressFamily, str]] = [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]
    if is_loopback(address):
        where = "127.0.0.1" if host == "localhost" else host
        places = [(socket.AF_INET6 if ":" in where else socket.AF_INET, where)]
    problem = OSError("the system has neither IPv4 nor IPv6")
    for family, where in places:
        try:
            listening = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            problem = error
            continue
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and where == "::":
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.bind((where, port))
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            problem = error
            if error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EPERM):
                break
        else:
            return listening, PortState.OPEN, ""
    said = problem.strerror or str(problem)
    if problem.errno == errno.EADDRINUSE:
        return None, PortState.TAKEN, _find_holder(port) or said
    if problem.errno in (errno.EACCES, errno.EPERM):
        return None, PortState.DENIED, said
    return None, PortState.FAILED, said


def address_is_local(address: str) -> bool:
    """Whether the host of an address is an address of this machine; True where that cannot be told."""
    host, _ = split_address(address)
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return True
    for family, kind, protocol, _, place in found:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as tried:
            tried.bind(place)
            return True
    return False


def _find_holder(port: int) -> str:
    """The process that listens at a port, as far as this user may see it."""
    nodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                entries = line.split()
                if entries[3] == _LISTEN_STATE and int(entries[1].rpartition(":")[2], 16) == port:
                    nodes.add(f"socket:[{entries[9]}]")
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(descriptor) in nodes:
                        name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                        return f"held by {name} (process {process.name})"
    return ""
