"""Real member processes of a transport, driven line by line.

As a program: one member. It reads commands as JSON lines, and answers each with one JSON line.
"""

import contextlib
import hashlib
import json
import logging
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

SECRET = "ab" * 32
_ROOT = Path(__file__).resolve().parent.parent.parent
_LIMIT_S = 60


class Member:
    """One member process, as its parent sees it."""

    def __init__(self, environment=(), prefix=()):
        self.process = subprocess.Popen(
            [*prefix, sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(_ROOT), **dict(environment)},
        )
        self.log = []
        self._answers = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._answers.put), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.log.append), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream, take):
        for line in stream:
            take(line.decode())

    def tell(self, do, **arguments):
        """Sends a command."""
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        """The answer to the oldest command that has none yet."""
        try:
            return json.loads(self._answers.get(timeout=_LIMIT_S))
        except queue.Empty:
            raise AssertionError(f"no answer; log: {''.join(self.log)[-3000:]}") from None

    def ask(self, do, **arguments):
        """Sends a command and returns its answer."""
        self.tell(do, **arguments)
        return self.answer()

    def signal(self, number):
        """Sends a signal, and waits until it has had its effect."""
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait(_LIMIT_S)
        elif number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self):
        """Ends the process."""
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait(_LIMIT_S)
        for thread in self._threads:
            thread.join(_LIMIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                stream.close()


class Members:
    """A number of member processes."""

    def __init__(self, count, environments=None, prefixes=None):
        self.members = [
            Member((environments or [()] * count)[rank], (prefixes or [()] * count)[rank]) for rank in range(count)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.end()

    def __getitem__(self, rank):
        return self.members[rank]

    def listen(self, host="127.0.0.1", ranks=None):
        """Lets members listen, and returns their addresses."""
        chosen = self._chosen(ranks)
        for member in chosen:
            member.tell("listen", host=host)
        shown = f"[{host}]" if ":" in host else host
        return [f"{shown}:{member.answer()['port']}" for member in chosen]

    def start_forming(self, addresses, ranks=None, **arguments):
        """Tells members to form a group; the answers are still to come."""
        names = arguments.pop("names", None) or [f"worker {rank}" for rank in range(len(addresses))]
        each = arguments.pop("each", {})
        for rank, member in enumerate(self._chosen(ranks)):
            member.tell("form", addresses=addresses, rank=rank, names=names, **{**arguments, **each.get(rank, {})})

    def form(self, host="127.0.0.1", ranks=None, **arguments):
        """Forms a group of all, or of some. Returns the answers."""
        addresses = self.listen(host, ranks)
        self.start_forming(addresses, ranks, **arguments)
        return self.answers(ranks)

    def tell(self, do, ranks=None, **arguments):
        """Sends a command to all, or to some."""
        for member in self._chosen(ranks):
            member.tell(do, **arguments)

    def answers(self, ranks=None):
        """The next answer of each."""
        return [member.answer() for member in self._chosen(ranks)]

    def ask(self, do, ranks=None, **arguments):
        """Sends a command, and returns the answers."""
        self.tell(do, ranks, **arguments)
        return self.answers(ranks)

    def _chosen(self, ranks):
        return self.members if ranks is None else [self.members[rank] for rank in ranks]


def inputs(rank, shapes, dtype, seed):
    """The arrays that a member puts into a sum."""
    import numpy as np

    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    random = np.random.default_rng((seed, rank))
    if np.issubdtype(dtype, np.integer):
        return [np.asarray(random.integers(0, np.iinfo(dtype).max, shape), dtype) for shape in shapes]
    return [(random.normal(size=shape) * 100).astype(dtype) for shape in shapes]


def digest(arrays):
    """A checksum of bytes and shapes."""
    checksum = hashlib.sha256()
    for array in arrays:
        checksum.update(repr((array.shape, str(array.dtype))).encode() + array.tobytes())
    return checksum.hexdigest()


class _Program:
    """What a member process does."""

    def __init__(self):
        from tfdist.communication import transports

        self.transports = transports
        self.listener = self.transport = None
        self.rank = -1

    def listen(self, host):
        self.listener = self.transports.listen(host)
        return {"port": self.listener.port}

    def form(
        self,
        addresses,
        rank,
        names,
        *,
        secret=SECRET,
        group="0",
        limit_s=30,
        exchange_limit_s=30,
        network_limit_s=None,
        **keywords,
    ):
        limit = self.transports.TimeLimit
        self.rank = rank
        self.transport = self.transports.form_group(
            self.listener,
            addresses,
            rank,
            secret=bytes.fromhex(secret),
            names=names,
            group=group,
            forming_limit=limit(limit_s, "forming_timeout_s"),
            exchange_limit=limit(exchange_limit_s, "exchange_timeout_s"),
            network_limit=network_limit_s and limit(network_limit_s, "network_timeout_s"),
            **keywords,
        )
        return {"hosts": self.transport.hosts}

    def reduce(self, shapes, dtype="float32", seed=0, times=1):
        arrays = inputs(self.rank, shapes, dtype, seed)
        digests = set()
        for _ in range(times):
            results = self.transport.all_reduce_sum(arrays)
            assert all(not array.size or array.ctypes.data % 64 == 0 for array in results)
            digests.add(digest(results))
        return {"digests": sorted(digests)}

    def gather(self, num_rows):
        import numpy as np

        rows = np.full((num_rows, 3), self.rank, np.int32)
        return {"rows": [array.tolist() for array in self.transport.all_gather(rows)]}

    def close(self):
        self.transport.close()
        return {}

    def close_during_reduce(self, shapes):
        """Closes from another thread while this one waits."""
        threading.Timer(0.3, self.transport.close).start()
        return self.reduce(shapes)

    def bytes_sent(self):
        """The kernel's count of data bytes sent, over all connections, and how many of them it had to send again."""
        import socket

        count = again = 0
        for peer in self.transport._links.peers.values():
            for connection in (peer.data, peer.channel.socket):
                information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                sent, resent = struct.unpack_from("=QQ", information, 200)  # tcpi_bytes_sent, tcpi_bytes_retrans
                count, again = count + sent, again + resent
        return {"bytes": count, "again": again}

    def pretend_host(self, host):
        """Takes this process for one on a host of another name."""
        from tfdist.communication.transports import shared_memory

        shared_memory.host_identity = lambda: host
        return {}

    def limit_file_size(self, size_bytes):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
        return {}

    def hide_processes(self):
        """Covers /proc for this process alone, as a container's own /proc does."""
        import ctypes

        system = ctypes.CDLL(None, use_errno=True)
        new_mount_namespace, private = 0x00020000, (1 << 18) | 0x4000
        if system.unshare(new_mount_namespace) or system.mount(b"none", b"/", None, private, None):
            return {"refused": os.strerror(ctypes.get_errno())}
        if system.mount(b"none", b"/proc", b"tmpfs", 0, None):
            return {"refused": os.strerror(ctypes.get_errno())}
        return {}

    def open_files(self):
        """Sockets that are open though the transport is closed, and memory that is shared though it is gone."""
        import gc

        def find(kind):
            files = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
            return [path for path in files if kind in path]

        sockets = find("socket:")
        self.transport = self.listener = None
        gc.collect()
        return {"open": sockets + find("memfd:")}

    def fork(self):
        """Leaves a forked process behind, as a pool of loaders does. It ends when this process's input does."""
        pid = os.fork()
        if not pid:
            os.closerange(1, 3)
            os.read(0, 1)
            os._exit(0)
        return {"pid": pid}

    def modules(self):
        return {"loaded": [name for name in ("tensorflow", "keras", "absl", "mpi4py") if name in sys.modules]}


def _main():
    logging.basicConfig(level=logging.INFO)
    program = _Program()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(program, command.pop("do"))(**command)
        except Exception as error:  # the parent judges it
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
