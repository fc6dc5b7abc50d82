"""Machines of a test: network namespaces that hang on one switch, from which each can be cut off."""

import contextlib
import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_LIMIT_S = 20
_numbers = itertools.count()


class Network:
    """Some machines, each with an address. Skips the test where the system gives none.

    Args:
        count: How many.
        names: What they are called among each other; by default only by their addresses.

    Attributes:
        hosts: Their addresses.
        prefixes: What to put before a command, to run it on that machine.
    """

    def __init__(self, count, names=()):
        self._names = names
        self._stack = contextlib.ExitStack()
        name = f"tfd{os.getpid()}n{next(_numbers)}"
        self._switch = f"{name}s"
        self._machines = [f"{name}m{index}" for index in range(count)]
        self.hosts = [f"10.98.0.{index + 1}" for index in range(count)]
        self.prefixes = [("ip", "netns", "exec", machine) for machine in self._machines]

    def __enter__(self):
        if os.geteuid() != 0 or shutil.which("ip") is None or _ip("netns", "add", self._switch):
            pytest.skip("network namespaces need root and ip")
        self._stack.callback(_ip, "netns", "del", self._switch)
        if _ip("-n", self._switch, "link", "add", "switch", "type", "bridge"):
            self._stack.close()
            pytest.skip("this kernel has no bridges")
        with self._stack as stack:  # closed only if something fails here
            self._do("-n", self._switch, "link", "set", "switch", "up")
            for index, machine in enumerate(self._machines):
                self._do("netns", "add", machine)
                stack.callback(_ip, "netns", "del", machine)
                end = ("type", "veth", "peer", "name", "v0", "netns", machine)
                self._do("-n", self._switch, "link", "add", f"p{index}", *end)
                self._do("-n", self._switch, "link", "set", f"p{index}", "master", "switch", "up")
                self._do("-n", machine, "addr", "add", f"{self.hosts[index]}/24", "dev", "v0")
                self._do("-n", machine, "link", "set", "lo", "up")
                self._do("-n", machine, "link", "set", "v0", "up")
                if self._names:
                    self._write_names(machine)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def cut(self, index):
        """Takes a machine off the switch. It sees nothing of that: what it sends is lost."""
        self._do("-n", self._switch, "link", "set", f"p{index}", "nomaster")

    def slow_down(self, index, rate):
        """Limits what a machine sends and gets, to a rate such as `100mbit`."""
        limit = ("root", "tbf", "rate", rate, "burst", "64kbit", "latency", "50ms")
        for end in ((self._machines[index], "v0"), (self._switch, f"p{index}")):
            done = subprocess.run(
                ["tc", "-n", end[0], "qdisc", "add", "dev", end[1], *limit], capture_output=True, timeout=_LIMIT_S
            )
            assert done.returncode == 0, done.stderr

    def _write_names(self, machine):
        """`ip netns exec` puts this file in the place of /etc/hosts (ip-netns(8))."""
        directory = Path("/etc/netns") / machine
        directory.mkdir(parents=True)
        self._stack.callback(shutil.rmtree, directory)
        known = zip(("127.0.0.1", *self.hosts), ("localhost", *self._names), strict=True)
        (directory / "hosts").write_text("".join(f"{address} {name}\n" for address, name in known))

    @staticmethod
    def _do(*arguments):
        assert not (problem := _ip(*arguments)), problem


def _ip(*arguments):
    """Runs `ip`; returns its complaint, empty for none."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=_LIMIT_S)
    return (done.stderr or f"status {done.returncode}") if done.returncode else ""
