"""One thing that would go wrong. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfdist.errors import describe_problem

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """One thing that would go wrong on one node.

    Attributes:
        check: Which check found it, such as `port` or `clock`.
        node: The node where it has to be mended: its task and, as far as known, its machine or address.
        what: What is wrong, in the user's terms.
        received: What was found there, and who found it.
        expected: The rule.
        fix: One action that mends it.
    """

    check: str
    node: str
    what: str
    received: str
    expected: str
    fix: str

    def __str__(self) -> str:
        return describe_problem(
            f"{self.node}: {self.what}", received=self.received, expected=self.expected, fix=self.fix
        )
