"""The kinds of failure of a save, and what to do about each."""

import errno

import pytest

from tfdist.checkpointing.save_problems import (
    FailedPartError,
    RecordError,
    StalledError,
    describe_failure,
    kind_of_failure,
)
from tfdist.errors import TimeLimitError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "full disk"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "full disk"),
        (OSError(errno.EFBIG, "File too large"), "full disk"),
        (PermissionError(errno.EACCES, "Permission denied"), "no permission"),
        (OSError(errno.EROFS, "Read-only file system"), "no permission"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "vanished directory"),
        (OSError(errno.ESTALE, "Stale file handle"), "vanished directory"),
        (OSError(errno.EIO, "Input/output error"), "other"),
        (OSError("no number"), "other"),
        (TimeLimitError("no part of task 1"), "missing part"),
        (FailedPartError("task 1 could not write its part"), "missing part"),
        (StalledError("the save before"), "stalled"),
        (RecordError("record['x'] is of type set"), "record"),
        (ValueError("x"), "other"),
    ],
)
def test_kinds(error, kind):
    assert kind_of_failure(error) == kind
    message = describe_failure(error, directory="/ckpt", step=7)
    assert "The checkpoint of step 7 could not be written; training goes on" in message
    assert str(error) in message
    assert "directory=/ckpt" in message
    assert message.count("\n  ") == 3  # Received, Expected, Fix
