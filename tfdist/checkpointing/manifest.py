"""What a checkpoint's manifest holds, and reading it without trusting it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfdist.checkpointing.naming import is_plain_file_name
from tfdist.checkpointing.retention import CheckpointFacts

__all__ = ["FORMAT_VERSION", "FileFacts", "Manifest", "ManifestError", "NewerFormatError", "Part"]

FORMAT_VERSION = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMPRESSIONS = (None, "gzip")


class ManifestError(ValueError):
    """A manifest that is none, in words that say what is wrong with it."""


class NewerFormatError(ManifestError):
    """A manifest of a format that this version of tfdist cannot read."""


@dataclass(frozen=True)
class FileFacts:
    """How to tell that a file is the one that was written.

    Attributes:
        size_bytes: Its size.
        sha256: The SHA-256 digest of its bytes, in hexadecimal.
    """

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """The own part of one task, as it tells the chief.

    Attributes:
        task: The task's number.
        files: Its files, by name.
        problem: Why it could not write them; empty if it could.
    """

    task: int
    files: dict[str, FileFacts]
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """The part as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Manifest:
    """A complete checkpoint.

    Attributes:
        step: Steps that its state has behind it.
        epoch: The epoch that training was in, or that is next.
        time: When it was committed, in seconds since 1970.
        num_tasks: How many tasks wrote a part of their own.
        files: All files that belong to it, by name.
        metrics: Values by which it may be the best one.
        cluster: The shape of the cluster, in words of the callback's (strategy, replicas, ...).
        versions: Of tfdist, Keras and TensorFlow.
        compression: `gzip`, whereby the files of tensors end in `.gz`, or None.
    """

    step: int
    epoch: int
    time: float
    num_tasks: int
    files: dict[str, FileFacts]
    metrics: dict[str, float] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    compression: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON values."""
        return {"format": FORMAT_VERSION, **asdict(self)}

    def facts(self, name: str) -> CheckpointFacts:
        """What retention asks about it, by the name of its directory."""
        return CheckpointFacts(name, self.step, self.time, self.metrics)

    @property
    def size_bytes(self) -> int:
        """The size of all its files."""
        return sum(facts.size_bytes for facts in self.files.values())


def parse_manifest(content: Mapping[str, Any]) -> Manifest:
    """Reads a manifest.

    Raises:
        NewerFormatError: It has another format version.
        ManifestError: A field is missing or cannot be what it says.
    """
    version = _whole_number(content, "format")
    if version != FORMAT_VERSION:
        raise NewerFormatError(f"its format is {version}; this version of tfdist reads format {FORMAT_VERSION}")
    compression = content.get("compression")
    if compression not in _COMPRESSIONS:
        raise ManifestError(f"compression is {compression!r}")
    return Manifest(
        step=_whole_number(content, "step"),
        epoch=_whole_number(content, "epoch"),
        time=_number(content, "time"),
        num_tasks=_whole_number(content, "num_tasks", minimum=1),
        files=_files(content),
        metrics={name: _number(_mapping(content, "metrics"), name) for name in _mapping(content, "metrics")},
        cluster=_mapping(content, "cluster"),
        versions={name: str(value) for name, value in _mapping(content, "versions").items()},
        compression=compression,
    )


def parse_part(content: Mapping[str, Any]) -> Part:
    """Reads what a task told the chief.

    Raises:
        ManifestError: A field is missing or cannot be what it says.
    """
    problem = content.get("problem")
    if not isinstance(problem, str):
        raise ManifestError("problem is no text")
    return Part(_whole_number(content, "task"), _files(content), problem)


def _files(content: Mapping[str, Any]) -> dict[str, FileFacts]:
    files = {}
    for name, facts in _mapping(content, "files").items():
        if not is_plain_file_name(name):
            raise ManifestError(f"{name!r} is no name of a file in the checkpoint's own directory")
        if not isinstance(facts, dict):
            raise ManifestError(f"the facts about {name} are no JSON object")
        digest = facts.get("sha256")
        if not (isinstance(digest, str) and _SHA256.fullmatch(digest)):
            raise ManifestError(f"the digest of {name} is none")
        files[name] = FileFacts(_whole_number(facts, "size_bytes"), digest)
    return files


def _mapping(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    if not isinstance(value, dict):
        raise ManifestError(f"{name} is no JSON object")
    return value


def _whole_number(content: Mapping[str, Any], name: str, *, minimum: int = 0) -> int:
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ManifestError(f"{name} is no whole number from {minimum} on")
    return value


def _number(content: Mapping[str, Any], name: str) -> float:
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ManifestError(f"{name} is no number")
    return float(value) if not isinstance(value, int) else float(min(max(value, -(2**1000)), 2**1000))


def comparable_metrics(values: object) -> dict[str, float]:
    """The numbers among `record["metrics"]`; what is none, NaN or infinite is left out: it is never the best."""
    if not isinstance(values, Mapping):
        return {}
    return {
        str(name): float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }
