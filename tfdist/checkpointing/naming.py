"""The names of checkpoints and of the files in them (docs/design/checkpoints.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "MANIFEST",
    "STATE",
    "CheckpointName",
    "bundle_files",
    "is_plain_file_name",
    "own_prefix",
    "parse_checkpoint_name",
    "parse_run_note_name",
    "part_file",
    "run_note_name",
]

#: Written last: a checkpoint is complete when this file is there and its seal is right.
MANIFEST = "manifest.json"
#: The prefix of the mirrored state, as `tf.train.load_checkpoint` takes it.
STATE = "state"

_NAME = re.compile(r"step-(\d{1,18})-([0-9a-f]{1,16})-(\d{1,9})")
_RUN_NOTE = re.compile(r"run-([0-9a-f]{1,16})\.json")
_PLAIN_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, order=True)
class CheckpointName:
    """The name of a checkpoint's directory, in its parts.

    Attributes:
        step: The number of steps that its state has behind it.
        run: The run that wrote it, up to 16 hexadecimal digits, so that two runs never write into one checkpoint.
        number: How many saves the run had begun before, so that a save that failed can be made again at its step.
    """

    step: int
    run: str
    number: int

    def __str__(self) -> str:
        return f"step-{self.step:09d}-{self.run}-{self.number}"


def parse_checkpoint_name(text: str) -> CheckpointName | None:
    """Reads the name of a directory entry; None if it is no checkpoint's."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    name = CheckpointName(int(found[1]), found[2], int(found[3]))
    return name if str(name) == text else None


def run_note_name(run: str) -> str:
    """The file that says which process makes a run's checkpoints."""
    return f"run-{run}.json"


def parse_run_note_name(text: str) -> str | None:
    """The run of a run note; None if the file is none."""
    found = _RUN_NOTE.fullmatch(text)
    return None if found is None else found[1]


def own_prefix(task: int) -> str:
    """The prefix of a task's own part."""
    return f"task-{task:05d}"


def part_file(task: int) -> str:
    """The file by which a task tells the chief that its own part is on disk, and what it is made of."""
    return f"part-{task:05d}.json"


def record_file(prefix: str) -> str:
    """The file of the JSON record beside the tensors of a prefix."""
    return f"{prefix}.json"


def bundle_files(prefix: str) -> tuple[str, str]:
    """The files that TensorFlow writes for a prefix: tensors in one file, and where each stands."""
    return f"{prefix}.data-00000-of-00001", f"{prefix}.index"


def is_plain_file_name(text: str) -> bool:
    """Whether the text names a file of the checkpoint's own directory and nothing else."""
    return _PLAIN_FILE.fullmatch(text) is not None
