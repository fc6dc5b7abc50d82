"""`ParameterServerStrategy`: asynchronous workers, variables on parameter servers."""

from __future__ import annotations

from typing import Any


def parameter_server_strategy(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError
