"""What of `tfdist checkpoint` needs TensorFlow: `python -m tfdist.snapshots ACTION DIR ...`.

Called by `tfdist/cli/checkpoint_command.py`, which has checked the arguments.
"""

from __future__ import annotations

import sys

from tfdist.errors import TfdistError
from tfdist.snapshots.export import export_checkpoint
from tfdist.snapshots.remote_files import locate
from tfdist.storage.commands import list_checkpoints, prune_checkpoints, verify_checkpoints

_CANNOT_BE_DONE = 2


def main(arguments: list[str]) -> int:
    """Carries one action out, and returns the status."""
    action, directory, *rest = arguments
    files, directory = locate(directory)
    try:
        if action == "list":
            return list_checkpoints(files, directory, print)
        if action == "verify":
            return verify_checkpoints(files, directory, print)
        if action == "prune":
            keep, remove_damaged, dry_run = (int(text) for text in rest)
            return prune_checkpoints(
                files, directory, print, keep=keep, remove_damaged=bool(remove_damaged), dry_run=bool(dry_run)
            )
        export_checkpoint(files, directory, rest[0], name=rest[1] or None)
    except (TfdistError, OSError) as error:
        print(f"tfdist: {error}", file=sys.stderr)
        return _CANNOT_BE_DONE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
