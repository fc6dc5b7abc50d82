"""Memory that the members on one host share.

It is a `memfd`: memory with a random name that stands in no directory, so that nothing is left of it when its processes
are gone, however they ended, and that no limit of /dev/shm applies to. Other members open it through /proc/PID/fd of
the member that made it, which the system allows to processes of the same user on the same host only: whoever finds the
random name there, shares the host.
"""

from __future__ import annotations

import mmap
import os
import secrets

import numpy as np

from tfdist.communication.transports.interface import Array

__all__ = ["SharedMemory", "attach", "create", "host_identity"]


def host_identity() -> str:
    """What members on one host have in common: a hint, to be proved by `attach`. Empty if memory cannot be shared."""
    if not hasattr(os, "memfd_create"):
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
    except OSError:
        return ""


class SharedMemory:
    """Memory in the view of one process.

    Attributes:
        array: The bytes.
        address: What other members need to attach: process, descriptor and name.
    """

    def __init__(self, descriptor: int, size_bytes: int, name: str) -> None:
        self._descriptor = descriptor
        self.address = {"pid": os.getpid(), "descriptor": descriptor, "name": name, "size_bytes": size_bytes}
        self.array: Array = np.frombuffer(mmap.mmap(descriptor, size_bytes), np.uint8)

    def close_descriptor(self) -> None:
        """Lets nobody attach any more. The memory lasts until the last array on it is gone."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def create(size_bytes: int) -> SharedMemory:
    """Makes memory.

    Raises:
        OSError: When the system refuses it, as for lack of memory.
    """
    name = f"tfdist-{secrets.token_hex(16)}"
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)  # reserved now: a write can not fail later
        return SharedMemory(descriptor, size_bytes, name)
    except OSError:
        os.close(descriptor)
        raise


def attach(pid: int, descriptor: int, name: str, size_bytes: int) -> SharedMemory:
    """Opens memory that another process made. Arguments as in its `address`.

    Raises:
        OSError: When there is no such memory on this host, or the system does not let this process open it.
    """
    path = f"/proc/{pid}/fd/{descriptor}"
    if not os.readlink(path).startswith(f"/memfd:{name}"):
        raise OSError(f"{path} is something else: that process is not on this host")
    opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return SharedMemory(opened, size_bytes, name)
    except OSError:
        os.close(opened)
        raise
