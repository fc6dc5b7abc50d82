"""`tfdist doctor` on seeded misconfigurations: each is named with its node and a fix, and nothing else is, in time.

The nodes are real processes on this machine. What a machine of its own would be needed for is seeded in one node's
process before the doctor starts: the clock and the version of Python by a `sitecustomize`, versions of packages by the
metadata that is found first, TensorFlow's devices by a module of its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from doctor_nodes import LIMIT_S, Answer, Node, run_nodes
from launcher_process import wait_for

from tfdist.diagnosis.facts import NodeFacts, Status
from tfdist.diagnosis.port import open_port
from tfdist.diagnosis.session import PURPOSE, Session, Times
from tfdist.launching.ports import choose_free_ports
from tfdist.messaging.connection import Connection, HandshakeError

TIME_LIMIT_S = 10.0  # the doctor's own, by default
AT_ONCE = 4
CORES = sorted(os.sched_getaffinity(0))
ONE_CORE = f"import os; os.sched_setaffinity(0, [{CORES[0]}])"


@dataclass(frozen=True)
class Seed:
    """A misconfiguration: how to make it, and what must be found: check, node, and words of the finding."""

    build: Callable[[Path, contextlib.ExitStack], list[Node]]
    expected: tuple[tuple[str, str, str], ...]


def addresses(count: int = 2) -> list[str]:
    return [f"127.0.0.1:{port}" for port in choose_free_ports(count)]


def two(**changes: object) -> list[Node]:
    """Two sound nodes, but for what is changed on worker 1."""
    workers = addresses()
    return [Node(workers, 0), Node(workers, 1, **changes)]  # type: ignore[arg-type]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def installed(directory: Path, package: str, version: str) -> Path:
    write(directory / f"{package}-{version}.dist-info" / "METADATA", f"Name: {package}\nVersion: {version}\n")
    return directory


def listen(address: str, stack: contextlib.ExitStack, backlog: int = 8) -> socket.socket:
    host, port = address.split(":")
    listening = stack.enter_context(socket.socket())
    listening.bind((host, int(port)))
    listening.listen(backlog)
    return listening


def no_name(directory, stack):
    workers = [addresses(1)[0], f"no-such-host.invalid:{choose_free_ports(1)[0]}"]
    return [Node(workers, 0), Node(workers, 1)]


def taken_port(directory, stack):
    nodes = two()
    listen(nodes[0].workers[1], stack)
    return nodes


def other_program(directory, stack):
    nodes = two()
    listen(nodes[0].workers[1], stack)
    return nodes[:1]


def blocked_port(directory, stack):
    """Linux drops what comes to a full backlog, as a firewall does."""
    nodes = two()
    listen(nodes[0].workers[1], stack, backlog=0)
    host, port = nodes[0].workers[1].split(":")
    for _ in range(8):
        filling = stack.enter_context(socket.socket())
        filling.settimeout(0.2)
        if filling.connect_ex((host, int(port))) != 0:
            return nodes[:1]
    raise AssertionError("the backlog cannot be filled")


def blocked_network(directory, stack):
    """Two network namespaces, joined by a cable; what worker 1 would answer goes nowhere."""

    def ip(*arguments: str) -> bool:
        return subprocess.run(["ip", *arguments], capture_output=True, timeout=LIMIT_S).returncode == 0

    spaces = [f"tfdist{os.getpid()}{letter}" for letter in "ab"]
    if os.geteuid() != 0 or shutil.which("ip") is None or not ip("netns", "add", spaces[0]):
        pytest.skip("network namespaces need root and ip")
    stack.callback(ip, "netns", "del", spaces[0])
    assert ip("netns", "add", spaces[1])
    stack.callback(ip, "netns", "del", spaces[1])
    assert ip("-n", spaces[0], "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", spaces[1])
    for index, space in enumerate(spaces):
        assert ip("-n", space, "addr", "add", f"10.99.0.{index + 1}/24", "dev", f"v{index}")
        assert ip("-n", space, "link", "set", "lo", "up")
        assert ip("-n", space, "link", "set", f"v{index}", "up")
    assert ip("-n", spaces[1], "route", "add", "blackhole", "10.99.0.1/32")
    workers = [f"10.99.0.{index + 1}:{port}" for index, port in enumerate(choose_free_ports(2))]
    return [Node(workers, index, prefix=("ip", "netns", "exec", spaces[index])) for index in range(2)]


def missing_node(directory, stack):
    return two()[:1]


def other_cluster(directory, stack):
    nodes = two()
    nodes[1].workers = [nodes[0].workers[0], addresses(1)[0]]
    return nodes


def broken_tf_config(directory, stack):
    return two(env={"TF_CONFIG": '{"cluster": {"worker": ["a"]'})[1:]


def same_task(directory, stack):
    """Worker 1 was told that it is worker 0."""
    workers = addresses()
    return [Node(workers, 0), Node(workers, 0)]


def other_secret(directory, stack):
    return two(env={"TFDIST_JOB_SECRET": "x" * 32})


def other_tensorflow(directory, stack):
    return two(path=installed(directory, "tensorflow", "1.15.0"))


def other_keras(directory, stack):
    return two(path=installed(directory, "keras", "2.1.0"))


def other_python(directory, stack):
    write(directory / "sitecustomize.py", "import platform\nplatform.python_version = lambda: '3.9.1'\n")
    return two(path=directory)


def other_script(directory, stack):
    scripts = [write(directory / str(n) / "train.py", f"print({n})\n") for n in range(2)]
    nodes = two(arguments=["--script", str(scripts[1])])
    nodes[0].arguments = ["--script", str(scripts[0])]
    return nodes


def no_script(directory, stack):
    path = write(directory / "train.py", "")
    nodes = two(arguments=["--script", str(directory / "gone.py")])
    nodes[0].arguments = ["--script", str(path)]
    return nodes


def checkpoint_dirs(directory: Path, second: str) -> list[Node]:
    (directory / "ckpt").mkdir()
    nodes = two(arguments=["--checkpoint-dir", second])
    nodes[0].arguments = ["--checkpoint-dir", str(directory / "ckpt")]
    return nodes


def unshared_dir(directory, stack):
    (directory / "other").mkdir()
    return checkpoint_dirs(directory, str(directory / "other"))


def absent_dir(directory, stack):
    return checkpoint_dirs(directory, str(directory / "absent"))


def unwritable_dir(directory, stack):
    return checkpoint_dirs(directory, "/sys")  # not even root may write there


def other_clock(directory, stack):
    shift = "import time\nreal = time.time\ntime.time = lambda: real() + 30\n"
    return two(path=write(directory / "sitecustomize.py", shift).parent)


def few_files(directory, stack):
    return two(before="import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))")


def few_cores(directory, stack):
    nodes = two(before=ONE_CORE)
    nodes[0].before = nodes[1].before
    return nodes


def unequal_cores(directory, stack):
    return two(before=ONE_CORE)


def with_devices(directory: Path, text: str) -> list[Node]:
    nodes = two(
        arguments=["--devices", "--time-limit-s", "10"], path=write(directory / "1" / "tensorflow.py", text).parent
    )
    nodes[0].arguments = nodes[1].arguments
    nodes[0].path = write(directory / "0" / "tensorflow.py", DEVICES.format(1)).parent
    return nodes


DEVICES = """
class Device:
    device_type = "GPU"
class config:
    list_physical_devices = staticmethod(lambda: [Device] * {})
"""


def unequal_devices(directory, stack):
    return with_devices(directory, DEVICES.format(4))


def broken_tensorflow(directory, stack):
    return with_devices(directory, "raise ImportError('libcudart.so.12: cannot open shared object file')")


def hung_node(directory, stack):
    hang = "import sys, threading\n'tfdist.diagnosis' in sys.orig_argv and threading.Event().wait(60)\n"
    return two(path=write(directory / "sitecustomize.py", hang).parent)


SEEDS = {
    "nothing": Seed(lambda directory, stack: two(arguments=[]), ()),
    "a name that does not resolve": Seed(no_name, (("name", "worker 0", "no-such-host.invalid of worker 1"),)),
    "a port that is taken": Seed(taken_port, (("port", "worker 1", "is taken"),)),
    "another program at the port": Seed(other_program, (("connection", "worker 1", "says nothing: another program"),)),
    "a port that is blocked": Seed(blocked_port, (("connection", "worker 1", "they are blocked"),)),
    "a network that is blocked": Seed(blocked_network, (("connection", "worker 1", "they are blocked"),)),
    "a node that is missing": Seed(missing_node, (("connection", "worker 1", "nothing listens"),)),
    "another cluster in TF_CONFIG": Seed(
        other_cluster, (("cluster description", "worker 1", "describes another cluster"),)
    ),
    "a TF_CONFIG that cannot be read": Seed(broken_tf_config, (("cluster description", "this node", "is not JSON"),)),
    "two nodes that are the same task": Seed(
        same_task,
        (
            ("task", "worker 0", "2 nodes say"),
            ("port", "worker 0", "is taken"),  # by the other
            ("connection", "worker 1", "nothing listens"),
        ),
    ),
    "another secret": Seed(other_secret, (("connection", "worker", "it has another secret"),)),
    "another TensorFlow": Seed(other_tensorflow, (("versions", "worker 1", "tensorflow=1.15.0"),)),
    "another Keras": Seed(other_keras, (("versions", "worker 1", "keras=2.1.0"),)),
    "another Python": Seed(other_python, (("versions", "worker 1", "python=3.9.1"),)),
    "another script": Seed(other_script, (("script", "worker 1", "another than that of others"),)),
    "no script": Seed(no_script, (("script", "worker 1", "No such file"),)),
    "a checkpoint directory that is not shared": Seed(
        unshared_dir, (("checkpoint directory", "worker 1", "not shared with worker 0"),)
    ),
    "no checkpoint directory": Seed(absent_dir, (("checkpoint directory", "worker 1", "it does not exist"),)),
    "a checkpoint directory that is not writable": Seed(
        unwritable_dir, (("checkpoint directory", "worker 1", "cannot be written to"),)
    ),
    "a clock that is ahead": Seed(other_clock, (("clock", "worker 1", "30.0 s ahead"),)),
    "too few files": Seed(few_files, (("open files", "worker 1", "ulimit -n = 256"),)),
    "too few cores": Seed(few_cores, (("cores", "worker 1", "1 cores for 2 workers"),)),
    "unequal cores": Seed(unequal_cores, (("devices", "worker 1", "it may use 1 cores"),)),
    "unequal devices": Seed(unequal_devices, (("devices", "worker 1", "4 GPU"),)),
    "a TensorFlow that does not start": Seed(broken_tensorflow, (("devices", "worker 1", "libcudart.so.12"),)),
    "a node whose doctor hangs": Seed(
        hung_node, (("doctor", "worker 1", "was killed"), ("connection", "worker 1", "nothing listens"))
    ),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[list[Answer]]]]:
    """The doctor's answers to all seeds. They mostly wait, and so some are run at once."""

    directories = {name: tmp_path_factory.mktemp("seed") for name in SEEDS}

    def run(name: str) -> list[Answer]:
        directory = directories[name]
        with contextlib.ExitStack() as stack:
            found = run_nodes(lambda: SEEDS[name].build(directory, stack))
        assert not list(directory.rglob(".tfdist-doctor-*"))
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, name) for name in SEEDS}


@pytest.mark.parametrize("name", SEEDS)
def test_seeded_misconfiguration(name: str, answers: dict[str, Future[list[Answer]]]) -> None:
    if name == "unequal cores" and len(CORES) < 2:
        pytest.skip("one core cannot be divided unequally")
    seed = SEEDS[name]
    nodes = answers[name].result()
    assert all(0 < node.diagnosis["seconds"] <= TIME_LIMIT_S == node.diagnosis["time_limit_s"] for node in nodes)
    found = [finding for node in nodes for finding in node.findings]
    if len(CORES) < 2 and name != "too few cores":
        found = [finding for finding in found if finding["check"] != "cores"]
    for check, node, words in seed.expected:
        named = [f for f in found if f["check"] == check and f["node"].startswith(node)]
        assert named, found
        assert any(words in " ".join(finding.values()) for finding in named), named
        assert all(finding["received"] and finding["expected"] and finding["fix"] for finding in named)
    assert {finding["check"] for finding in found} == {check for check, _, _ in seed.expected}, found
    assert all(node.status == bool(node.findings) for node in nodes)


def test_all_nodes_tell_the_same_when_all_can_talk(answers: dict[str, Future[list[Answer]]]) -> None:
    for name in (
        "another TensorFlow",
        "another script",
        "a clock that is ahead",
        "a checkpoint directory that is not shared",
    ):
        first, second = answers[name].result()
        assert {f["node"] for f in first.findings} == {f["node"] for f in second.findings}, name


def test_links_are_measured(answers: dict[str, Future[list[Answer]]]) -> None:
    for node in answers["nothing"].result():
        links = [link for report in node.diagnosis["nodes"] for link in report["observations"]["links"]]
        others = [link for link in links if link["latency_s"] is not None]
        assert len(others) == 2
        assert all(link["latency_s"] > 0 and link["bandwidth_bytes_s"] > 0 for link in others)


def run_local(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdist", "doctor", *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )


def test_local_nodes(tmp_path: Path) -> None:
    done = run_local("--local", "2", "--checkpoint-dir", str(tmp_path))
    assert done.stderr == ""
    assert "2 nodes answered" in done.stdout
    assert "worker 0  worker 1" in done.stdout
    assert not list(tmp_path.iterdir())
    assert done.returncode == (0 if len(CORES) > 1 else 1)


def test_findings_in_words(tmp_path: Path) -> None:
    done = run_local("--local", "2", "--script", str(tmp_path / "gone.py"))
    assert done.returncode == 1
    for words in (
        "1. worker 0 (",
        "2. worker 1 (",
        "\n  Received: --script=",
        "\n  Expected: ",
        "\n  Fix: copy it there",
    ):
        assert words in done.stdout


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """While it waits for a node that is missing."""
    node = two(arguments=[])[0]
    node.arguments = ["--checkpoint-dir", str(tmp_path)]
    process = node.start()
    try:
        wait_for(lambda: any(tmp_path.iterdir()), lambda: "the doctor wrote no file")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, stderr) == (130, "")
        wait_for(lambda: not any(tmp_path.iterdir()), lambda: f"left: {list(tmp_path.iterdir())}")
    finally:
        process.kill()
        process.communicate()


def test_strangers_learn_nothing_and_disturb_nobody() -> None:
    """One who talks something else, one who says nothing, and one who has another secret."""
    workers = tuple(addresses())
    ports = [open_port(address)[0] for address in workers]
    facts = [NodeFacts(f"token-{n}", f"worker {n}", cluster={"worker": workers}, host="here") for n in range(2)]
    now = time.monotonic()
    with contextlib.ExitStack() as stack:
        strangers = []
        for address in workers * 3:
            host, port = address.split(":")
            strangers.append(stack.enter_context(socket.create_connection((host, int(port)))))
        for stranger in strangers[:2]:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(100))
        with ThreadPoolExecutor(4) as pool:
            sessions = [Session(facts[n], ports[n], b"right", Times(now + 20, now + 25)) for n in range(2)]
            running = [pool.submit(session.run) for session in sessions]
            refused = [pool.submit(Connection(wrong, PURPOSE, now + 20).initiate, b"wrong") for wrong in strangers[4:]]
            for waiting in refused:
                with pytest.raises(HandshakeError, match="secret"):
                    waiting.result()
            for n, reports in enumerate(waiting.result() for waiting in running):
                assert {report.facts.token for report in reports} == {"token-0", "token-1"}
                assert reports[0].facts.token == f"token-{n}"
                assert all(link.status == Status.REACHED for link in reports[0].observations.links)
