"""A file system that does something at a chosen operation: raises an error, or kills the process."""

from __future__ import annotations

from tfdist.storage.files import LocalFiles


class FaultyFiles(LocalFiles):
    """Calls `fault(operation, path)` before each operation that changes or syncs something, and amid each write.

    Operations: `make_dir`, `make_dirs`, `write` (before), `write half` (half of the bytes are on disk), `written`,
    `sync_file`, `sync_dir`, `remove_file`, `remove_dir`.
    """

    def __init__(self, fault):
        self.fault = fault

    def make_dirs(self, path):
        self.fault("make_dirs", path)
        super().make_dirs(path)

    def make_dir(self, path):
        self.fault("make_dir", path)
        super().make_dir(path)

    def write(self, path, pieces):
        self.fault("write", path)
        data = b"".join(pieces)
        super().write(path, [data[: len(data) // 2]])
        self.fault("write half", path)
        super().write(path, [data])
        self.fault("written", path)

    def sync_file(self, path):
        self.fault("sync_file", path)
        super().sync_file(path)

    def sync_dir(self, path):
        self.fault("sync_dir", path)
        super().sync_dir(path)

    def remove_file(self, path):
        self.fault("remove_file", path)
        super().remove_file(path)

    def remove_dir(self, path):
        self.fault("remove_dir", path)
        super().remove_dir(path)


def record_operations(operations):
    """A fault that only notes what is done: (operation, name of the file)."""
    return lambda operation, path: operations.append((operation, path.rsplit("/", 1)[1]))
