"""Members that are lost and that come, between real processes that add up numbers."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tfdist.rendezvous.membership import Rules
from tfdist.rendezvous.server import RendezvousServer

MEMBER = Path(__file__).with_name("elastic_member.py")
ROWS = 12


class Member:
    def __init__(self, server, name, num_operations, seconds, env):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(MEMBER), server.address, name, str(num_operations), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        self.said = []
        self.threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        self.errors = ""
        for thread in self.threads:
            thread.start()

    def _read(self):
        with self.process.stdout:
            for line in self.process.stdout:
                self.said.append(json.loads(line))

    def _read_errors(self):
        with self.process.stderr:
            self.errors = self.process.stderr.read()

    @property
    def operations(self):
        return [said["operation"] for said in list(self.said) if "operation" in said]

    def wait_for(self, operation, limit_s=40):
        until = time.monotonic() + limit_s
        while (self.operations or [-1])[-1] < operation:
            assert self.process.poll() is None or operation in self.operations, self.errors
            assert time.monotonic() < until, (self.name, self.said[-3:])
            time.sleep(0.002)

    def end(self):
        assert self.process.wait(60) == 0, self.errors
        for thread in self.threads:
            thread.join(10)


class Job:
    def __init__(self, count, num_operations, *, fewest=1, most=None, seconds=0.0, **env):
        self.server = RendezvousServer(Rules(fewest, most or count, 30.0, 20.0), "secret")
        self.new = lambda name: Member(self.server, name, num_operations, seconds, env)
        self.members = [self.new(f"m{index}") for index in range(count)]
        self.num_operations = num_operations

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.process.kill()
            member.process.wait()
            for thread in member.threads:
                thread.join(10)
        self.server.close()


def assert_totals(member, first, num_operations):
    done = [said for said in member.said if "operation" in said]
    assert [said["operation"] for said in done] == list(range(first, num_operations))
    for said in done:
        start = said["operation"] * ROWS
        assert said["total"] == sum(range(start, start + ROWS)), said


@pytest.mark.parametrize("shares_memory", ["1", pytest.param("0", marks=pytest.mark.campaign)])
def test_survivors_go_on_and_every_sum_is_whole(shares_memory):
    with Job(4, 400, seconds=0.005, SHARES_MEMORY=shares_memory) as job:
        victims = random.sample(job.members, 3)
        for number, victim in enumerate(victims):
            victim.wait_for(50 + 80 * number + random.randrange(40))
            time.sleep(random.random() * 0.01)
            victim.process.send_signal(signal.SIGKILL)
            assert victim.process.wait(10) == -signal.SIGKILL
        (survivor,) = (member for member in job.members if member not in victims)
        survivor.end()
        assert_totals(survivor, 0, 400)
        assert {said["members"] for said in survivor.said if "total" in said} == {4, 3, 2, 1}


def test_two_lost_at_once():
    with Job(4, 200, seconds=0.005) as job:
        job.members[0].wait_for(60)
        for victim in job.members[:2]:
            victim.process.kill()
        for survivor in job.members[2:]:
            survivor.end()
            assert_totals(survivor, 0, 200)
            assert survivor.said[-1]["members"] == 2


def test_newcomers_are_taken_in_and_told_where_the_others_are():
    with Job(3, 600, most=3, seconds=0.005) as job:
        job.members[0].wait_for(50)
        job.members[0].process.kill()
        job.members[1].wait_for(100)
        newcomer = job.new("n0")
        job.members.append(newcomer)
        newcomer.wait_for(0)
        for member in job.members[1:3]:
            member.end()
            assert_totals(member, 0, 600)
        newcomer.end()
        first = newcomer.said[0]["joined"]
        assert first > 50
        assert newcomer.said[0]["members"][-1] == "n0"
        assert_totals(newcomer, first, 600)


def test_fewer_than_the_fewest_end_with_a_reason():
    with Job(3, 10_000, fewest=2, seconds=0.005) as job:
        job.members[0].wait_for(20)
        for victim in job.members[:2]:
            victim.process.kill()
        assert job.members[2].process.wait(30) == 1
        job.members[2].threads[1].join(10)
        assert "2 of 3 members are gone" in job.members[2].errors or "at least 2" in job.members[2].errors


def test_a_stranger_and_a_wrong_secret_change_nothing():
    from tfdist.errors import PeerLostError
    from tfdist.rendezvous.client import RendezvousClient

    with Job(2, 200, seconds=0.005) as job:
        job.members[0].wait_for(10)
        with pytest.raises(PeerLostError, match="cannot reach the rendezvous"):
            RendezvousClient(job.server.address, "wrong", "x").enter()
        import socket

        host, _, port = job.server.address.rpartition(":")
        with socket.create_connection((host, int(port)), 5) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" * 10)
        for member in job.members:
            member.end()
            assert_totals(member, 0, 200)
