"""How the failures of an exchange are worded, and found out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tfdist.communication.transports.interface import TimeLimit
from tfdist.errors import ArgumentError, PeerLostError, TfdistError, TimeLimitError, describe_problem

__all__ = ["FAILED", "LOST", "SILENT", "find_silent", "from_report", "lost_peers", "mismatch", "silent_peers"]

LOST, SILENT, FAILED = "lost", "silent", "failed"


def find_silent(waits_for: Mapping[int, Collection[int]], asked_by: int) -> list[int]:
    """Finds who holds up an exchange, from what the members say they wait for.

    Args:
        waits_for: For the asking member and each member that answered, the ranks it waits for.
        asked_by: The rank from which the search starts.

    Returns:
        The ranks, sorted, that somebody waits for along the chains from `asked_by`, and that gave no answer. Empty when
        all of them answered.
    """
    silent: set[int] = set()
    seen = {asked_by}
    ahead = list(waits_for[asked_by])
    while ahead:
        rank = ahead.pop()
        if rank in seen:
            continue
        seen.add(rank)
        if rank in waits_for:
            ahead.extend(waits_for[rank])
        else:
            silent.add(rank)
    return sorted(silent)


def from_report(
    report: Mapping[str, Any], names: Sequence[str], own_rank: int, limit: TimeLimit, reporter: str | None = None
) -> TfdistError:
    """The error that a report of a failure stands for.

    Args:
        report: `how` (`LOST`, `SILENT` or `FAILED`), `ranks` (of those who caused it), `detail`, and `limit_s`.
        names: The members' task names with addresses, by rank.
        own_rank: This member's.
        limit: This member's time limit; the report's own length counts.
        reporter: The member that saw it, if it is not this one.
    """
    who = [names[rank] + (" (this process)" if rank == own_rank else "") for rank in report["ranks"]]
    if report["how"] == LOST:
        return lost_peers(who, report["detail"], reporter)
    if report["how"] == SILENT:
        limit = TimeLimit(report.get("limit_s", limit.seconds), limit.setting)
        return silent_peers(who, limit, report["detail"], reporter)
    return _gave_up(who[0], report["detail"])


def lost_peers(peers: Sequence[str], detail: str, reporter: str | None = None) -> PeerLostError:
    """The error about members that are gone.

    Args:
        peers: Their names with addresses.
        detail: What was seen, and what was waited for.
        reporter: The member that saw it, if it is not this one.
    """
    who = " and ".join(peers)
    return PeerLostError(
        describe_problem(
            f"Lost {who}",
            received=detail + (f" (seen by {reporter})" if reporter else ""),
            expected="every member stays until the group is closed",
            fix=f"read the log of {who}: this error is a consequence of what happened there",
        )
    )


def silent_peers(peers: Sequence[str], limit: TimeLimit, detail: str, reporter: str | None = None) -> TimeLimitError:
    """The error about members that sent nothing for the limit. Arguments as `lost_peers`."""
    who = " and ".join(peers)
    return TimeLimitError(
        describe_problem(
            f"Nothing came from {who} for {limit.seconds:g} s",
            received=f"{limit} {detail}" + (f" (seen by {reporter})" if reporter else ""),
            expected="every member comes to the exchange and sends its part within the limit",
            fix=f"look at what {who} does (stopped, swapping, or at another place in the program?), "
            f"or raise {limit.setting} if steps can differ by so much",
        )
    )


def _gave_up(peer: str, detail: str) -> PeerLostError:
    """The error when another member left because of an error of its own."""
    return PeerLostError(
        describe_problem(
            f"{peer} has left the group after an error of its own",
            received=detail,
            expected="every member stays until the group is closed",
            fix=f"read the log of {peer}",
        )
    )


def mismatch(own_name: str, peer: str, own: str, theirs: str) -> ArgumentError:
    """The error when two members do not exchange the same thing."""
    return ArgumentError(
        describe_problem(
            "Members of one group make different exchanges",
            received=f"{own_name}: {own}; {peer}: {theirs}",
            expected="every member makes the same calls in the same order, with the same dtypes and shapes",
            fix="let no member skip or add a step, and build the same model everywhere",
        )
    )
