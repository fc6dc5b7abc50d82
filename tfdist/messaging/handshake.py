"""How two members prove to each other that they know the job's secret. Pure: bytes in, bytes out.

Challenge and response with HMAC-SHA-256 (RFC 2104). Each side sends 32 random bytes and its claims; each proof covers
both hellos and the role of the prover, so that neither a proof that was sent back nor one from another connection is
right.

    initiator -> acceptor: hello
    acceptor -> initiator: hello, proof
    initiator -> acceptor: proof
    acceptor -> initiator: one byte, the verdict

The secret never travels. What is exchanged afterwards is neither encrypted nor signed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from collections.abc import Generator
from dataclasses import asdict, dataclass

__all__ = ["Claims", "HandshakeError", "Steps", "accept", "initiate"]

_MAGIC = b"tfdistTR"
_VERSION = 1
_HELLO = struct.Struct("!8sB32sH")
_LARGEST_CLAIMS = 2048
_PROOF_BYTES = 32
_WELCOME, _UNWANTED = b"W", b"U"

Steps = Generator["bytes | int", bytes, "Claims"]
"""Yields bytes to send, or a number of bytes to receive, which come with `send`; returns the other side's claims."""


@dataclass(frozen=True)
class Claims:
    """What a member says about itself and the connection; believed after its proof.

    Attributes:
        group: The group's id; differs between attempts.
        rank: Its rank.
        to_rank: Whom it means to talk to.
        num_members: How many members it thinks the group has.
        channel: What the connection is for.
        host: What tells hosts apart; empty for one that shares no memory.
    """

    group: str
    rank: int
    to_rank: int
    num_members: int
    channel: str
    host: str


class HandshakeError(Exception):
    """A handshake that failed.

    Attributes:
        claims: What the other side claimed, believed or not, if it came so far.
        is_final: Whether trying again cannot help.
    """

    def __init__(self, reason: str, claims: Claims | None = None, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.claims = claims
        self.is_final = is_final


def initiate(own: Claims, secret: bytes) -> Steps:
    """The side that connects.

    Raises:
        HandshakeError: In the generator, when the other side is no member, has another secret, or does not want us.
    """
    hello = _hello(own)
    yield hello
    their_hello, theirs = yield from _receive_hello()
    proof = yield _PROOF_BYTES
    if not hmac.compare_digest(proof, _prove(secret, b"acceptor", hello, their_hello)):
        raise HandshakeError(
            "it does not know this process's secret: one of the two has another", theirs, is_final=True
        )
    yield _prove(secret, b"initiator", hello, their_hello)
    verdict = yield 1
    problem = _disagreement(own, theirs)
    if verdict != _WELCOME or problem:
        raise HandshakeError(problem or "it does not want this connection", theirs, is_final=True)
    return theirs


def accept(own: Claims, secret: bytes) -> Steps:
    """The side that listens. Of `own`, `channel` and `to_rank` are taken from the other side.

    Raises:
        HandshakeError: As `initiate`.
    """
    their_hello, theirs = yield from _receive_hello()
    own = Claims(**{**asdict(own), "channel": theirs.channel, "to_rank": theirs.rank})
    hello = _hello(own)
    yield hello + _prove(secret, b"acceptor", their_hello, hello)
    try:
        proof = yield _PROOF_BYTES
    except EOFError:
        raise HandshakeError("it went away instead of a proof: it probably has another secret", theirs) from None
    if not hmac.compare_digest(proof, _prove(secret, b"initiator", their_hello, hello)):
        raise HandshakeError("it does not know the secret", theirs)
    problem = _disagreement(own, theirs)
    yield _UNWANTED if problem else _WELCOME
    if problem:
        raise HandshakeError(problem, theirs)
    return theirs


def _hello(claims: Claims) -> bytes:
    body = json.dumps(asdict(claims)).encode()
    return _HELLO.pack(_MAGIC, _VERSION, secrets.token_bytes(32), len(body)) + body


def _receive_hello() -> Generator[bytes | int, bytes, tuple[bytes, Claims]]:
    head = yield _HELLO.size
    magic, version, _, size = _HELLO.unpack(head)
    if magic != _MAGIC:
        raise HandshakeError("it does not speak this protocol")
    if version != _VERSION:
        raise HandshakeError(f"it speaks version {version} of the protocol, this process {_VERSION}", is_final=True)
    if size > _LARGEST_CLAIMS:
        raise HandshakeError("its claims are too long")
    body = yield size
    try:
        claims = Claims(**json.loads(body))
        is_sound = all(type(getattr(claims, name)) is type(value) for name, value in asdict(_EXAMPLE).items())
    except (ValueError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise HandshakeError("its claims cannot be read")
    return head + body, claims


def _disagreement(own: Claims, theirs: Claims) -> str:
    if theirs.group != own.group:
        return f"it forms the group {theirs.group!r}, this process {own.group!r}"
    if theirs.num_members != own.num_members:
        return f"it forms a group of {theirs.num_members} members, this process one of {own.num_members}"
    if theirs.to_rank != own.rank:
        return f"it means to talk to member {theirs.to_rank}, this process is member {own.rank}"
    if theirs.rank != own.to_rank or theirs.rank == own.rank or not 0 <= theirs.rank < own.num_members:
        return f"it is member {theirs.rank}"
    if theirs.channel != own.channel:
        return f"it makes a connection for {theirs.channel!r}"
    return ""


def _prove(secret: bytes, role: bytes, initiator_hello: bytes, acceptor_hello: bytes) -> bytes:
    return hmac.digest(secret, b"tfdist " + role + b"\0" + initiator_hello + acceptor_hello, hashlib.sha256().name)


_EXAMPLE = Claims("", 0, 0, 0, "", "")
