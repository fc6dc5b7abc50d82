"""Which checkpoints a directory holds, and whether they are what was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tfdist.checkpointing.manifest import Manifest, ManifestError, NewerFormatError, parse_manifest
from tfdist.checkpointing.naming import MANIFEST, CheckpointName, parse_checkpoint_name
from tfdist.checkpointing.sealing import DamagedError, TornError, unseal
from tfdist.storage.digests import file_facts, read_file
from tfdist.storage.files import Files

__all__ = ["FoundCheckpoint", "find_checkpoints", "find_damage", "read_checkpoint"]


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint's directory, as it was found.

    Attributes:
        name: The directory's name, in its parts.
        path: The directory.
        manifest: Its manifest; None where that is missing or cannot be used.
        is_complete: Whether its save came to its end, be it damaged since or not.
        problem: What is wrong, naming the file; empty for a complete checkpoint whose files have the right sizes.
        is_newer_format: Whether a newer version of tfdist wrote it.
    """

    name: CheckpointName
    path: str
    manifest: Manifest | None
    is_complete: bool
    problem: str
    is_newer_format: bool = False

    @property
    def is_usable(self) -> bool:
        """Whether it is complete and, as far as was looked, undamaged."""
        return self.manifest is not None and not self.problem


def find_checkpoints(files: Files, directory: str) -> list[FoundCheckpoint]:
    """All checkpoints of a directory, the newest first. Looks at manifests and sizes, not at digests.

    Newer is what has more steps behind it; of equals, what was committed later.

    Raises:
        OSError: The directory cannot be read. One that does not exist holds no checkpoint.
    """
    try:
        entries = files.list_dir(directory)
    except FileNotFoundError:
        return []
    names = [name for name in map(parse_checkpoint_name, entries) if name is not None]
    found = [read_checkpoint(files, directory, name) for name in names]
    found.sort(key=lambda one: (one.name.step, one.manifest.time if one.manifest else 0.0, one.name), reverse=True)
    return found


def read_checkpoint(files: Files, directory: str, name: CheckpointName, *, sizes: bool = True) -> FoundCheckpoint:
    """Looks at one checkpoint: its manifest, and the sizes of its files unless told not to."""
    path = f"{directory}/{name}"
    try:
        manifest = parse_manifest(unseal(read_file(files, f"{path}/{MANIFEST}")))
    except (FileNotFoundError, NotADirectoryError):
        return FoundCheckpoint(name, path, None, False, f"{path}/{MANIFEST} is missing: a save did not come to its end")
    except TornError as error:
        return FoundCheckpoint(name, path, None, False, f"{path}/{MANIFEST}: {error}")
    except NewerFormatError as error:
        return FoundCheckpoint(name, path, None, True, f"{path}/{MANIFEST}: {error}", is_newer_format=True)
    except (DamagedError, ManifestError, OSError) as error:
        return FoundCheckpoint(name, path, None, True, f"{path}/{MANIFEST}: {error}")
    problem = f"{path}/{MANIFEST}: it is of step {manifest.step}" if manifest.step != name.step else ""
    for file, facts in manifest.files.items() if sizes else ():
        try:
            size_bytes = files.size_bytes(f"{path}/{file}")
        except OSError as error:
            problem = problem or f"{path}/{file}: {error.strerror or error}"
            continue
        if size_bytes != facts.size_bytes:
            problem = problem or f"{path}/{file}: it has {size_bytes} bytes instead of {facts.size_bytes}"
    return FoundCheckpoint(name, path, manifest, True, problem)


def find_damage(files: Files, found: FoundCheckpoint, only: Iterable[str] | None = None) -> str:
    """Compares the files of a complete checkpoint with their digests.

    Args:
        files: The file system.
        found: The checkpoint.
        only: The names to look at; None for all.

    Returns:
        What is wrong first, naming the file; empty if nothing is.
    """
    if found.manifest is None or found.problem:
        return found.problem
    for file in found.manifest.files if only is None else only:
        try:
            facts = file_facts(files, f"{found.path}/{file}")
        except OSError as error:
            return f"{found.path}/{file}: {error.strerror or error}"
        if facts != found.manifest.files.get(file):
            return f"{found.path}/{file}: its bytes are other ones than were written"
    return ""
