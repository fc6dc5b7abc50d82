"""Collecting every problem of one cluster description, to report them in a single error."""

from __future__ import annotations

from tfdist.errors import ClusterConfigError, describe_problem

_MAX_SHOWN_CHARACTERS = 200


def show(value: object) -> str:
    """The `repr` of a received value, cut so that a huge one cannot bury the message."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    if len(text) > _MAX_SHOWN_CHARACTERS:
        return f"{text[:_MAX_SHOWN_CHARACTERS]}... ({len(text)} characters)"
    return text


class Problems:
    """The problems found so far in the description that came from `source`."""

    def __init__(self, source: str):
        self._source = source
        self._messages: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, what: str, *, name: str, value: object, expected: str, fix: str) -> None:
        """Adds a problem of the part called `name`, whose value is `value`."""
        received = f"{name}={show(value)} (from {self._source})"
        self._messages.append(describe_problem(what, received=received, expected=expected, fix=fix))

    def raise_if_any(self) -> None:
        """Ends the validation.

        Raises:
            ClusterConfigError: A problem was added. Its message lists them all.
        """
        if len(self._messages) == 1:
            raise ClusterConfigError(self._messages[0])
        if self._messages:
            listed = "\n".join(f"{number}. {message}" for number, message in enumerate(self._messages, 1))
            raise ClusterConfigError(
                f"The cluster description from {self._source} has {len(self._messages)} problems.\n{listed}"
            )
