"""Round trip, clock and bandwidth between two doctors.

Clock: D. Mills et al., RFC 5905 (NTP version 4), section 8: with T1 and T4 the times of sending and receiving here, T2
and T3 those of receiving and sending there, the offset is ((T2 - T1) + (T3 - T4)) / 2 and the round trip
(T4 - T1) - (T3 - T2). The offset is wrong by at most half the round trip, so that of the shortest one counts.
"""

from __future__ import annotations

import json
import time

from tfdist.messaging.connection import Connection

__all__ = ["BLOCK", "BLOCKS_END", "PING", "answer_measurements", "measure_bandwidth", "ping"]

PING, BLOCK, BLOCKS_END = b"P", b"B", b"E"

_NUM_PINGS = 8
_BANDWIDTH_S = 0.3
_BLOCK_BYTES = 1 << 18


def ping(connection: Connection) -> tuple[float, float]:
    """The shortest round trip, and the clock there minus the clock here, both in seconds."""
    shortest = None
    for _ in range(_NUM_PINGS):
        t1 = time.time()
        sent = time.perf_counter()
        connection.send(PING)
        t2, t3 = connection.receive_json(PING)
        round_trip_s = max(time.perf_counter() - sent - (t3 - t2), 0.0)
        t4 = time.time()
        if shortest is None or round_trip_s < shortest[0]:
            shortest = (round_trip_s, ((t2 - t1) + (t3 - t4)) / 2)
    assert shortest is not None
    return shortest


def measure_bandwidth(connection: Connection) -> float | None:
    """What goes to the other side, in bytes per second, by its own watch; None if too little came to say."""
    block = bytes(_BLOCK_BYTES)
    end = time.perf_counter() + _BANDWIDTH_S
    while time.perf_counter() < end:
        connection.send(BLOCK, block)
    connection.send(BLOCKS_END)
    num_bytes, seconds = connection.receive_json(BLOCKS_END)
    return float(num_bytes / seconds) if seconds > 0 and num_bytes > 0 else None


def answer_measurements(connection: Connection) -> tuple[bytes, bytes]:
    """The other side of `ping` and `measure_bandwidth`. Returns the first frame that belongs to neither."""
    num_bytes, first = 0, 0.0
    while True:
        kind, body = connection.receive()
        if kind == PING:
            received = time.time()
            connection.send(PING, json.dumps([received, time.time()]).encode())
        elif kind == BLOCK:
            if first:  # counted from the end of the first block on
                num_bytes += len(body)
            first = first or time.perf_counter()
        elif kind == BLOCKS_END:
            connection.send_json(BLOCKS_END, [num_bytes, time.perf_counter() - first if first else 0.0])
            num_bytes, first = 0, 0.0
        else:
            return kind, body
