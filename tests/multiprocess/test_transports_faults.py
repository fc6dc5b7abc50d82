"""Members that die, stop, lie or leave, between real processes: what the others say, and that they can go on."""

import os
import signal
import socket
import time

import pytest
from transport_members import Members

LARGE = [[4_000_000]]
HOSTS = ("aaaa", "abcd", "aabb")


def param(*values):
    """A case; the last value says whether it waits for `make campaign`."""
    *values, is_rest = values
    return pytest.param(*values, marks=[pytest.mark.campaign] if is_rest else [])


#: In `make test` each kind of host once, small or large.
SMALL_AND_LARGE = [
    param(hosts, shapes, (hosts == "abcd") != (shapes == LARGE)) for hosts in HOSTS for shapes in ([[5]], LARGE)
]


def assert_all_name(answers, error, name, *words):
    """Every survivor's error names the culprit first, and nobody else as such."""
    for answer in answers:
        assert answer.get("error") == error, answer
        headline = answer["message"].split("\n")[0]
        assert answer["message"].count("Received:") == 1, answer["message"]
        assert f"{name} at 127.0.0.1:" in headline, answer["message"]
        assert headline.count("worker") == 1, answer["message"]
        for word in words:
            assert word in answer["message"], answer["message"]


def set_hosts(members, names):
    for rank, name in enumerate(names):
        members[rank].ask("pretend_host", host=name)


@pytest.mark.parametrize(("hosts", "shapes"), SMALL_AND_LARGE)
def test_killed_before_its_part(hosts, shapes):
    with Members(4) as members:
        set_hosts(members, hosts)
        members.form()
        members.ask("reduce", shapes=shapes)
        members.tell("reduce", [0, 1, 3], shapes=shapes)
        members[2].signal(signal.SIGKILL)
        assert_all_name(members.answers([0, 1, 3]), "PeerLostError", "worker 2", "closed")


def test_killed_with_a_forked_process_left():
    with Members(2) as members:
        members.form()
        child = members[1].ask("fork")["pid"]
        members[0].tell("reduce", shapes=[[5]])
        members[1].signal(signal.SIGKILL)
        assert_all_name([members[0].answer()], "PeerLostError", "worker 1", "closed")
        os.kill(child, 0)  # it was still there
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("hosts", [param(h, h != "aaaa") for h in HOSTS])
def test_killed_amid_exchanges(hosts):
    with Members(4) as members:
        set_hosts(members, hosts)
        members.form()
        members.ask("reduce", shapes=LARGE)
        members.tell("reduce", shapes=LARGE, times=100_000)
        time.sleep(0.5)  # so that it is somewhere in an exchange; where, does not matter
        members[1].signal(signal.SIGKILL)
        assert_all_name(members.answers([0, 2, 3]), "PeerLostError", "worker 1")


@pytest.mark.parametrize(("hosts", "shapes"), SMALL_AND_LARGE)
def test_stopped(hosts, shapes):
    with Members(4) as members:
        set_hosts(members, hosts)
        members.form(exchange_limit_s=2)
        members.ask("reduce", shapes=shapes)
        members.tell("reduce", [0, 1, 2], shapes=shapes)
        members[3].signal(signal.SIGSTOP)
        answers = members.answers([0, 1, 2])
        assert_all_name(answers, "TimeLimitError", "worker 3", "exchange_timeout_s=2", "summing over all members")


@pytest.mark.parametrize("hosts", [param(h, h != "aaaa") for h in HOSTS])
def test_stopped_amid_exchanges(hosts):
    with Members(4) as members:
        set_hosts(members, hosts)
        members.form(exchange_limit_s=2)
        members.tell("reduce", shapes=LARGE, times=100_000)
        time.sleep(0.5)  # as above
        members[3].signal(signal.SIGSTOP)
        assert_all_name(members.answers([0, 1, 2]), "TimeLimitError", "worker 3", "exchange_timeout_s=2")
        members[3].signal(signal.SIGCONT)
        assert "(this process)" in members[3].answer()["message"]


def test_one_that_closes_is_named():
    with Members(3) as members:
        members.form()
        members.tell("reduce", [0, 1], shapes=[[5]])
        members[2].ask("close")
        assert_all_name(members.answers([0, 1]), "PeerLostError", "worker 2", "closed its transport")


def test_one_that_ends_after_its_last_exchange_harms_nobody():
    with Members(3) as members:
        members.form(shares_memory=False)
        for _ in range(10):
            members[0].tell("reduce", shapes=LARGE)
            members[1].tell("reduce", shapes=LARGE)
            members[2].tell("reduce", shapes=LARGE)
            assert all("digests" in answer for answer in members.answers())
        members.tell("reduce", shapes=LARGE)
        members[2].tell("close")
        assert all("digests" in answer for answer in members.answers())


def test_different_exchanges():
    with Members(3) as members:
        members.form()
        members.tell("reduce", [0, 1], shapes=[[5]])
        members.tell("reduce", [2], shapes=[[6]])
        answers = members.answers()
        assert all("different exchanges" in answer["message"] for answer in answers)


def test_close_breaks_a_wait_and_fewer_form_again():
    with Members(3) as members:
        members.form()
        members.ask("reduce", shapes=LARGE)
        members[0].tell("close_during_reduce", shapes=LARGE)  # the others do not come
        assert members[0].answer()["error"] == "TransportClosedError"
        members[2].signal(signal.SIGKILL)
        members.ask("close", [0, 1])
        answers = members.form(ranks=[0, 1], group="1", names=["worker 0", "worker 1"])
        assert answers == [{"hosts": [[0, 1]]}] * 2
        results = members.ask("reduce", [0, 1], shapes=LARGE)
        assert results[0]["digests"] == results[1]["digests"]


def test_forms_again_after_a_failure_many_times():
    with Members(3) as members:
        for attempt in range(5):
            members.form(group=str(attempt))
            members.tell("reduce", [0, 1], shapes=LARGE)
            members[2].ask("close")
            assert_all_name(members.answers([0, 1]), "PeerLostError", "worker 2")
            members.ask("close")
        assert [len(answer["open"]) for answer in members.ask("open_files")] == [0, 0, 0]


def test_another_secret():
    with Members(3) as members:
        addresses = members.listen()
        members.start_forming(addresses, limit_s=3, each={2: {"secret": "cd" * 32}})
        answers = members.answers()
        assert answers[2]["error"] == "ArgumentError"
        assert "does not know this process's secret" in answers[2]["message"]
        for answer in answers[:2]:
            assert answer["error"] == "TimeLimitError"
            assert "worker 2 at" in answer["message"].split("\n")[0]
            assert "probably has another secret" in answer["message"]
            assert "forming_timeout_s=3" in answer["message"]


def test_another_attempt():
    with Members(2) as members:
        addresses = members.listen()
        members.start_forming(addresses, limit_s=2, each={1: {"group": "1"}})
        answers = members.answers()
        assert "forms the group '0', this process '1'" in answers[1]["message"]
        assert "forms the group '1', this process '0'" in answers[0]["message"]


def test_a_missing_member():
    with Members(3) as members:
        addresses = members.listen()
        members[1].end()
        for rank in (0, 2):
            names = ["worker 0", "worker 1", "worker 2"]
            members[rank].tell("form", addresses=addresses, rank=rank, names=names, limit_s=2)
        assert_all_name(members.answers([0, 2]), "TimeLimitError", "worker 1", "forming_timeout_s=2")


def test_a_member_that_stops_while_the_group_forms():
    with Members(3) as members:
        addresses = members.listen()
        members[0].signal(signal.SIGSTOP)  # its port still takes connections
        for rank in (1, 2):
            names = ["worker 0", "worker 1", "worker 2"]
            members[rank].tell("form", addresses=addresses, rank=rank, names=names, limit_s=2)
        assert_all_name(members.answers([1, 2]), "TimeLimitError", "worker 0", "forming_timeout_s=2")


def test_strangers_do_not_disturb():
    with Members(3) as members:
        addresses = members.listen()
        strangers = []
        hello = b"tfdistTR\x01" + bytes(32)
        for said in (
            b"",
            b"GET / HTTP/1.1\r\nHost: a.stranger.example\r\nAccept: */*\r\n\r\n",
            b"\0" * 5000,
            hello + b"\xff\xff",
            hello + b"\0\x02{}",
            hello[:20],
        ):
            for address in addresses:
                host, port = address.split(":")
                stranger = socket.create_connection((host, int(port)))
                stranger.sendall(said)
                strangers.append(stranger)
        for address in addresses:  # one that goes away at once, and one that resets
            host, port = address.split(":")
            socket.create_connection((host, int(port))).close()
            stranger = socket.create_connection((host, int(port)))
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            stranger.close()
        members.start_forming(addresses)
        assert members.answers() == [{"hosts": [[0, 1, 2]]}] * 3
        results = members.ask("reduce", shapes=[[3]])
        assert results == [results[0]] * 3
        for stranger in strangers:
            stranger.close()
        for rank in range(3):
            members[rank].end()
            assert "".join(members[rank].log).count("it does not speak this protocol") == 1  # of two such strangers
