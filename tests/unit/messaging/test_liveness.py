"""How often the kernel asks, so that it gives up at the limit."""

import socket

import pytest

from tfdist.messaging.liveness import watch_connection


@pytest.mark.parametrize(
    ("limit_s", "idle_s", "interval_s"), [(60, 20, 10), (6, 2, 1), (5, 1, 1), (1, 1, 1), (3600, 1200, 600)]
)
def test_the_probes_end_at_the_limit(limit_s, idle_s, interval_s):
    with socket.socket() as connected:
        watch_connection(connected, limit_s)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = [
            connected.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_KEEP{name}"))
            for name in ("IDLE", "INTVL", "CNT")
        ]
    assert options == [idle_s, interval_s, 4]
    assert idle_s + 4 * interval_s == max(limit_s, 5)
