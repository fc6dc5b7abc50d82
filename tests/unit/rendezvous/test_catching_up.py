"""Members that had finished an operation when another one was lost give its result to those that had not."""

import threading

import numpy as np
import pytest

from tfdist.communication.elastic import MembershipChangedError, enter_job
from tfdist.communication.transports import TimeLimit
from tfdist.errors import PeerLostError
from tfdist.rendezvous.membership import Rules
from tfdist.rendezvous.server import RendezvousServer

pytestmark = pytest.mark.timeout(60)


class LosesTheResult:
    """A transport whose next exchange is made, and fails before its result is there."""

    def __init__(self, transport):
        self.transport = transport

    def all_reduce_sum(self, parts, **options):
        self.transport.all_reduce_sum(parts, **options)
        raise PeerLostError("Lost c, the test says.")

    def close(self):
        self.transport.close()


def enter(server, name):
    return enter_job(
        server.address,
        "secret",
        name,
        exchange_limit=TimeLimit(20, "a test's"),
        network_limit=TimeLimit(60, "a test's"),
        start_limit_s=20,
        regroup_limit_s=20,
        shares_memory=False,
    )


def together(*actions):
    """Runs each in a thread of its own; returns what they return or raise."""
    outcomes = [None] * len(actions)

    def run(index, action):
        try:
            outcomes[index] = action()
        except Exception as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    return outcomes


def operation(member, *values):
    member.begin_operation()
    return [int(member.all_reduce_sum([np.array([value])])[0][0]) for value in values]


def test_those_behind_get_the_result_and_those_ahead_do_theirs_again():
    server = RendezvousServer(Rules(1, 3, 30.0, 20.0), "secret")
    a, b, c = members = [enter(server, name) for name in "abc"]
    try:
        together(*(member.start for member in members))
        assert together(*(lambda m=m: operation(m, 1) for m in members)) == [[3]] * 3
        b._transport = LosesTheResult(b._transport)

        def ahead():
            assert operation(a, 10) == [111]
            with pytest.raises(MembershipChangedError):
                operation(a, 5)
            return [int(a.all_reduce_sum([np.array([5])])[0][0])]  # the same operation, again

        def behind():
            assert operation(b, 100) == [111]  # from a
            return operation(b, 7)

        def leaves():
            assert operation(c, 1) == [111]
            c.close()

        assert together(ahead, behind, leaves) == [[12], [12], None]
        assert a.members == b.members
        assert set(a.members) == {"a", "b"}
    finally:
        for member in members:
            member.close()
        server.close()
