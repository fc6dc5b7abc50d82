"""Two ends that prove who they are, and what others can do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.messaging.handshake import Claims, HandshakeError, accept, initiate

SECRET = b"s" * 32
ONE = Claims("group", 1, 0, 3, "data", "host")  # connects
ZERO = Claims("group", 0, -1, 3, "", "host")  # accepts


class End:
    """One end: what it wants to send and what it got."""

    def __init__(self, steps):
        self.steps, self.sent, self.wanted, self.claims, self.error = steps, b"", 0, None, None
        self.go(None)

    def go(self, message):
        try:
            wish = self.steps.send(message)
            while isinstance(wish, bytes):
                self.sent += wish
                wish = next(self.steps)
            self.wanted = wish
        except StopIteration as end:
            self.claims, self.wanted = end.value, 0
        except HandshakeError as error:
            self.error, self.wanted = error, 0

    def take(self, stream):
        """Feeds what it wants of a stream; returns the rest."""
        while self.wanted and len(stream) >= self.wanted:
            message, stream = stream[: self.wanted], stream[self.wanted :]
            self.go(message)
        return stream


def connect(one, zero):
    to_zero = to_one = b""
    for _ in range(10):
        to_zero, one.sent = zero.take(to_zero + one.sent), b""
        to_one, zero.sent = one.take(to_one + zero.sent), b""
    return one, zero


def test_both_believe_each_other():
    one, zero = connect(End(initiate(ONE, SECRET)), End(accept(ZERO, SECRET)))
    assert zero.claims == ONE
    assert one.claims == replace(ZERO, to_rank=1, channel="data")


def test_another_secret():
    one, zero = connect(End(initiate(ONE, SECRET)), End(accept(ZERO, b"t" * 32)))
    assert "secret" in str(one.error)
    assert one.error.is_final
    assert zero.claims is None
    with pytest.raises(HandshakeError, match="probably has another secret"):
        zero.steps.throw(EOFError())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"group": "next"}, "forms the group"),
        ({"num_members": 4}, "4 members"),
        ({"to_rank": 2}, "means to talk to member 2"),
        ({"rank": 7}, "is member 7"),
        ({"rank": 0}, "is member 0"),
    ],
)
def test_claims_that_do_not_fit(changed, words):
    one, zero = connect(End(initiate(replace(ONE, **changed), SECRET)), End(accept(ZERO, SECRET)))
    assert words in str(zero.error)
    assert zero.error.claims == replace(ONE, **changed)
    assert one.claims is None
    assert one.error is not None


def test_a_reflected_hello_and_proof_are_refused():
    # An attacker without the secret lets the member's two roles answer each other's challenges.
    connecting = End(initiate(ONE, SECRET))
    accepting = End(accept(replace(ZERO, rank=1), SECRET))  # the same member, at its port
    accepting.take(connecting.sent)
    connecting.take(accepting.sent + b"W")
    assert connecting.claims is None
    assert "it is member 1" in str(connecting.error)
    accepting.take(connecting.sent[-32:])
    assert accepting.claims is None
    assert "means to talk to member 0" in str(accepting.error)


def test_its_own_proof_sent_back_is_refused():
    accepting = End(accept(ZERO, SECRET))
    accepting.take(End(initiate(ONE, b"unknown")).sent)
    accepting.take(accepting.sent[-32:])
    assert accepting.claims is None
    assert "does not know the secret" in str(accepting.error)


def test_a_recorded_connection_cannot_be_played_again():
    one, zero = End(initiate(ONE, SECRET)), End(accept(ZERO, SECRET))
    hello = one.sent
    zero.take(hello)
    one.take(zero.sent)
    recorded = one.sent
    again = End(accept(ZERO, SECRET))
    again.take(recorded)
    assert again.claims is None
    assert "does not know the secret" in str(again.error)


@given(st.binary(max_size=200))
def test_garbage_proves_nothing(garbage):
    for end in (End(initiate(ONE, SECRET)), End(accept(ZERO, SECRET))):
        end.take(garbage + bytes(3000))
        assert end.claims is None


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_seen(position, change):
    one, zero = End(initiate(ONE, SECRET)), End(accept(ZERO, SECRET))
    zero.take(one.sent)
    one.take(zero.sent)
    stream = bytearray(one.sent)
    stream[position % len(stream)] ^= change
    fresh = End(accept(ZERO, SECRET))
    fresh.take(bytes(stream))
    assert fresh.claims is None
    reply = bytearray(zero.sent)
    reply[position % len(reply)] ^= change
    other = End(initiate(ONE, SECRET))
    other.take(bytes(reply))
    assert other.claims is None


def test_another_version():
    one = End(initiate(ONE, SECRET))
    stream = bytearray(one.sent)
    stream[8] += 1
    zero = End(accept(ZERO, SECRET))
    zero.take(bytes(stream))
    assert "version 2" in str(zero.error)
