"""The nodes' talk: each looks for all others at their addresses, tells them its facts, and then what it found.

Every connection is one of two doctors, authenticated both ways with the job's secret. The side that connects sends its
facts and gets the other's, measures the round trip and, along the ring in which gradients travel, the bandwidth. When
a node has looked everywhere, or at `settle_at`, it tells its observations on every connection. All blocking calls are
made in daemon threads, and all waits end: `run` returns at `end_at` whatever they do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tfdist.cluster.address import split_address
from tfdist.diagnosis.facts import (
    Link,
    NodeFacts,
    NodeReport,
    Observations,
    Status,
    addresses_of,
    read_facts,
    read_observations,
)
from tfdist.diagnosis.measuring import answer_measurements, measure_bandwidth, ping
from tfdist.diagnosis.port import address_is_local
from tfdist.diagnosis.shared_directory import SharedDirectory
from tfdist.messaging.connection import Connection, HandshakeError

__all__ = ["PURPOSE", "Session", "Times"]

#: Of the connections between doctors, who talk although their descriptions of the cluster differ.
PURPOSE = "tfdist doctor"

_RETRY_AFTER_S = 0.2
_POLL_S = 0.05
_OWN_ADDRESS_LIMIT_S = 1.0
_DEVICES_BEFORE_SETTLING_S = 0.5  # the process that asks is killed before this one may end
_MOST_STRANGERS = 64
_FACTS, _OBSERVATIONS = b"F", b"O"
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError)
Devices = Callable[[float], tuple[dict[str, int] | None, str]]


@dataclass(frozen=True)
class Times:
    """When waits end, by `time.monotonic`, which all processes of a machine share.

    Attributes:
        settle_at: When this node stops looking for others and tells what it found.
        end_at: When it stops talking.
    """

    settle_at: float
    end_at: float


class Session:
    """One run of the doctor on one node."""

    def __init__(
        self,
        facts: NodeFacts,
        listening: socket.socket | None,
        secret: bytes,
        times: Times,
        ask_devices: Devices | None = None,
    ) -> None:
        self._facts = facts
        self._listening = listening
        self._secret = secret
        self._times = times
        self._ask_devices = ask_devices
        self._addresses = addresses_of(facts.cluster)
        self._lock = threading.Lock()
        self._links = {task: Link(task, address) for task, address in self._addresses.items()}
        self._looking = set(self._addresses)
        self._talking = 0  # connections of which the other side has proved the secret, and has not been told all
        self._answering = 0
        self._told: set[str] = set()  # tokens of nodes that have sent their observations to this one's port
        self._reports: dict[str, NodeReport] = {}
        self._own = Observations()
        self._settled = threading.Event()
        self._directory: SharedDirectory | None = None

    def run(self) -> list[NodeReport]:
        """Talks with the others until all is known, or the time is over. Returns all reports, the own one first."""
        background: list[Callable[[], None]] = [partial(self._look_for, task) for task in self._addresses]
        if self._facts.checkpoint_dir is not None:
            self._looking.add("checkpoint directory")
            background.append(self._look_into_directory)
        if self._ask_devices is not None:
            self._looking.add("devices")
            background.append(self._look_at_devices)
        if self._listening is not None:
            background.append(self._serve)
        try:
            for action in background:
                threading.Thread(target=action, daemon=True).start()
            self._wait_for_all()
        finally:
            self._end()
        with self._lock:
            return [NodeReport(self._facts, self._own), *self._reports.values()]

    def _wait_for_all(self) -> None:
        while time.monotonic() < self._times.end_at:
            with self._lock:
                if not self._settled.is_set() and (not self._looking or time.monotonic() >= self._times.settle_at):
                    self._own = replace(self._own, links=tuple(self._links.values()))
                    self._settled.set()
                if self._settled.is_set() and self._has_told_all():
                    break
            time.sleep(_POLL_S)

    def _end(self) -> None:
        if self._directory is not None:
            removing = threading.Thread(target=self._directory.remove, daemon=True)
            removing.start()
            removing.join(_RETRY_AFTER_S)
        if self._listening is not None:
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listening.close()

    def _has_told_all(self) -> bool:
        # A node that this one reached comes to this one's port, too, if it can.
        reached = {link.peer for link in self._own.links if link.status == Status.REACHED} - {self._facts.token}
        return self._talking == 0 and (self._listening is None or reached <= self._told)

    # Looking

    def _look_for(self, task: str) -> None:
        is_own = task == self._facts.task
        if is_own:
            is_local = address_is_local(self._addresses[task])
            with self._lock:
                self._own = replace(self._own, address_is_local=is_local)
        while not self._settled.is_set():
            if self._try_to_reach(task) or is_own:
                break
            time.sleep(_RETRY_AFTER_S)
        with self._lock:
            self._looking.discard(task)

    def _try_to_reach(self, task: str) -> bool:
        """Tries once. Returns whether that is the last word."""
        address = self._addresses[task]
        # At its own address a node looks for one that says it is the same task, and does not wait for others.
        is_own = task == self._facts.task
        end = time.monotonic() + _OWN_ADDRESS_LIMIT_S if is_own else self._times.end_at
        connected: socket.socket | None = None
        try:
            host, port = split_address(address)
            self._set_link(task, status=Status.RESOLVING, detail="the name service has not answered")
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._set_link(task, status=Status.CONNECTING, detail="nothing came back")
            connected = self._connect(task, places)
            self._set_link(task, status=Status.SILENT, detail="no answer")
            connection = Connection(connected, PURPOSE, end)
            connection.initiate(self._secret)
            self._set_link(task, status=Status.LOST, detail="it broke off, or was too slow")
            peer = self._measure(task, connection)
        except socket.gaierror as error:
            self._set_link(task, status=Status.UNRESOLVED, detail=error.strerror or str(error))
        except HandshakeError as error:
            status = Status.SECRET if "secret" in str(error) else Status.STRANGER
            self._set_link(task, status=status, detail=str(error))
            return error.is_final
        except TimeoutError:
            pass  # the status says how far it came
        except (OSError, EOFError) as error:
            self._fail(task, error)
        else:
            if peer is not None:
                threading.Thread(target=self._tell, args=(connection, peer), daemon=True).start()
                connected = None
            return True
        finally:
            if connected is not None:
                connected.close()
        return False

    def _connect(self, task: str, places: list[tuple[Any, ...]]) -> socket.socket:
        left = max(self._times.settle_at - time.monotonic(), _POLL_S)
        limit_s = min(left, _OWN_ADDRESS_LIMIT_S) if task == self._facts.task else left
        problem: OSError = ConnectionError("no address")
        for family, kind, protocol, _, place in places:
            trying = socket.socket(family, kind, protocol)
            try:
                trying.settimeout(limit_s / len(places))
                trying.connect(place)
                if (
                    trying.getsockname() == trying.getpeername()
                ):  # TCP can connect a free port of this machine to itself
                    raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            except OSError as error:
                trying.close()
                problem = error
            else:
                return trying
        raise problem

    def _fail(self, task: str, error: OSError | EOFError) -> None:
        said = getattr(error, "strerror", None) or str(error)
        stage = self._links[task].status
        if stage != Status.CONNECTING:
            status = Status.STRANGER if stage == Status.SILENT else Status.LOST
        elif isinstance(error, ConnectionRefusedError):
            status = Status.REFUSED
        else:
            status = Status.UNREACHABLE
        self._set_link(task, status=status, detail=said)

    def _measure(self, task: str, connection: Connection) -> NodeFacts | None:
        """Gets to know the other side. Returns its facts if it is another node, and the one that was looked for."""
        connection.send_json(_FACTS, dataclasses.asdict(self._facts))
        facts = self._read_facts(connection)
        if task == self._facts.task:
            self._set_link(task, status=Status.REACHED, detail="", peer=facts.token)
            return None
        if facts.task != task:
            self._set_link(task, status=Status.WRONG_TASK, detail=facts.name, peer=facts.token)
            return None
        latency_s, offset_s = ping(connection)
        bandwidth = measure_bandwidth(connection) if task == self._next_in_ring() else None
        with self._lock:
            self._talking += 1
        self._set_link(
            task,
            status=Status.REACHED,
            detail="",
            peer=facts.token,
            latency_s=latency_s,
            offset_s=offset_s,
            bandwidth_bytes_s=bandwidth,
        )
        return facts

    def _next_in_ring(self) -> str | None:
        tasks = list(self._addresses)
        if self._facts.task not in tasks or len(tasks) < 2:
            return None
        return tasks[(tasks.index(self._facts.task) + 1) % len(tasks)]

    def _set_link(self, task: str, **changes: object) -> None:
        with self._lock:
            self._links[task] = replace(self._links[task], **changes)  # type: ignore[arg-type]

    def _look_into_directory(self) -> None:
        assert self._facts.checkpoint_dir is not None
        directory = SharedDirectory(self._facts.checkpoint_dir, self._facts.token)
        with self._lock:
            self._own = replace(self._own, checkpoint_problem="the file system does not answer")
            self._directory = directory  # before there is a file, so that it is removed, whenever this ends
        problem = directory.write()
        with self._lock:
            self._own = replace(self._own, checkpoint_problem=problem)
        while not problem and not self._settled.is_set():
            with self._lock:
                others = {report.facts.token for report in self._reports.values()}
            seen = directory.find(others)
            with self._lock:
                if not self._settled.is_set():
                    self._own = replace(self._own, seen_in_checkpoint_dir=tuple(sorted(seen)))
            if seen == others and len(others) >= len(set(self._addresses) - {self._facts.task}):
                break
            time.sleep(_RETRY_AFTER_S)
        with self._lock:
            self._looking.discard("checkpoint directory")

    def _look_at_devices(self) -> None:
        assert self._ask_devices is not None
        with self._lock:
            self._own = replace(self._own, devices_problem="it did not start in time")
        limit_s = self._times.settle_at - _DEVICES_BEFORE_SETTLING_S - time.monotonic()
        devices, problem = self._ask_devices(max(limit_s, _POLL_S))
        with self._lock:
            self._own = replace(self._own, devices=devices, devices_problem=problem)
            self._looking.discard("devices")

    # Telling

    def _tell(self, connection: Connection, peer: NodeFacts) -> None:
        """Tells a node that this one has reached what was found, and hears what it found."""
        with contextlib.suppress(OSError, EOFError, *_MALFORMED), contextlib.closing(connection):
            self._wait_until_settled()
            connection.send_json(_OBSERVATIONS, dataclasses.asdict(self._own))
            self._learn(peer, read_observations(connection.receive_json(_OBSERVATIONS)))
        with self._lock:
            self._talking -= 1

    def _wait_until_settled(self) -> None:
        self._settled.wait(max(0.0, self._times.end_at - time.monotonic()))

    def _serve(self) -> None:
        assert self._listening is not None
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return  # it was closed: the session is over
            with self._lock:
                is_too_many = self._answering >= _MOST_STRANGERS + len(self._addresses)
                self._answering += not is_too_many
            if is_too_many:
                connected.close()
                continue
            threading.Thread(target=self._answer, args=(connected,), daemon=True).start()

    def _answer(self, connected: socket.socket) -> None:
        """Serves one connection of whoever came."""
        is_talking = False
        with contextlib.suppress(OSError, EOFError, HandshakeError, *_MALFORMED), contextlib.closing(connected):
            connection = Connection(connected, PURPOSE, self._times.end_at)
            connection.accept(self._secret)
            with self._lock:
                self._talking += 1
            is_talking = True
            peer = self._read_facts(connection)
            connection.send_json(_FACTS, dataclasses.asdict(self._facts))
            kind, body = answer_measurements(connection)
            if kind == _OBSERVATIONS:
                self._learn(peer, read_observations(json.loads(body)))
                self._wait_until_settled()
                connection.send_json(_OBSERVATIONS, dataclasses.asdict(self._own))
                with self._lock:
                    self._told.add(peer.token)
        with self._lock:
            self._talking -= is_talking
            self._answering -= 1

    def _read_facts(self, connection: Connection) -> NodeFacts:
        try:
            facts = read_facts(connection.receive_json(_FACTS))
        except _MALFORMED as error:
            raise ConnectionError(f"its facts cannot be read: {error}") from error
        self._learn(facts, None)
        return facts

    def _learn(self, facts: NodeFacts, observations: Observations | None) -> None:
        with self._lock:
            if facts.token != self._facts.token:
                old = self._reports.get(facts.token)
                self._reports[facts.token] = NodeReport(facts, observations or (old and old.observations) or None)
