"""Operations of an elastic job: done again when its members change on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from tfdist.communication.elastic import ElasticTransport, MembershipChangedError
from tfdist.communication.transport_exchange import TransportExchange

__all__ = ["perform"]

_Result = TypeVar("_Result")


def perform(
    group: ElasticTransport,
    act: Callable[[], _Result],
    *,
    exchange: TransportExchange | None = None,
    undo: Callable[[], Any] = lambda: None,
) -> _Result:
    """Does one operation. Collective: every member does, with at least one exchange.

    Args:
        group: The members.
        act: The operation. It may be called several times, and finds the members of the moment in `group`.
        exchange: What `act` sums with in graphs. TensorFlow makes an error of its own of what Python raises there.
        undo: Undoes what an interrupted `act` has changed.
    """
    group.begin_operation()
    while True:
        try:
            return act()
        except MembershipChangedError:
            pass
        except tf.errors.OpError:
            if exchange is None or not isinstance(exchange.failure, MembershipChangedError):
                raise
            exchange.failure = None
        undo()
