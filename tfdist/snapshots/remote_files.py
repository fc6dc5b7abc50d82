"""File systems that TensorFlow reaches by a URL, such as gs:// and s3://, and its errors as Python's."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

import tensorflow as tf

from tfdist.storage.files import Files, LocalFiles

__all__ = ["RemoteFiles", "locate", "os_errors"]

# TensorFlow's message ends with the system's, if it comes from a local file system.
_NAMED = ("ENOSPC", "EDQUOT", "EFBIG", "EACCES", "EPERM", "EROFS", "ENOENT", "ENOTDIR", "ESTALE", "ENOTCONN")
_ERRNO = {
    tf.errors.NotFoundError: errno.ENOENT,
    tf.errors.PermissionDeniedError: errno.EACCES,
    tf.errors.UnauthenticatedError: errno.EACCES,
    tf.errors.ResourceExhaustedError: errno.ENOSPC,
}


def locate(directory: str | os.PathLike[str]) -> tuple[Files, str]:
    """The file system of a directory, and how it is called there.

    A URL is TensorFlow's, except for file://, which means this machine's, as does a path.
    """
    path = os.fspath(directory).removeprefix("file://")
    return (RemoteFiles(), path.rstrip("/")) if "://" in path else (LocalFiles(), os.path.abspath(path))


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """Raises TensorFlow's errors within as `OSError`, with the error number where there is one that fits."""
    try:
        yield
    except tf.errors.OpError as error:
        named = [getattr(errno, name) for name in _NAMED if hasattr(errno, name)]
        by_text = [number for number in named if os.strerror(number) in str(error.message)]
        by_kind = [number for kind, number in _ERRNO.items() if isinstance(error, kind)]
        number = (by_text + by_kind + [errno.EIO])[0]
        raise OSError(number, f"{type(error).__name__}: {error.message}") from error


class RemoteFiles:
    """What `tf.io.gfile` reaches. Such a store keeps an object when it is closed, and lists it at once."""

    def list_dir(self, path: str) -> list[str]:
        """See `Files`."""
        with os_errors():
            return [name.rstrip("/") for name in tf.io.gfile.listdir(path)]

    def make_dirs(self, path: str) -> None:
        """See `Files`."""
        with os_errors():
            tf.io.gfile.makedirs(path)

    def make_dir(self, path: str) -> None:
        """See `Files`."""
        with os_errors(), contextlib.suppress(tf.errors.AlreadyExistsError):
            tf.io.gfile.mkdir(path)

    def is_dir(self, path: str) -> bool:
        """See `Files`."""
        with os_errors():
            return bool(tf.io.gfile.isdir(path))

    def size_bytes(self, path: str) -> int:
        """See `Files`."""
        with os_errors():
            return int(tf.io.gfile.stat(path).length)

    def modified(self, path: str) -> float:
        """See `Files`."""
        with os_errors():
            return float(tf.io.gfile.stat(path).mtime_nsec) / 1e9

    def open(self, path: str) -> BinaryIO:
        """See `Files`."""
        return cast(BinaryIO, _Reader(path))

    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        """See `Files`."""
        with os_errors(), tf.io.gfile.GFile(path, "wb") as file:
            for piece in pieces:
                file.write(piece)

    def sync_file(self, path: str) -> None:
        """See `Files`."""

    def sync_dir(self, path: str) -> None:
        """See `Files`."""

    def remove_file(self, path: str) -> None:
        """See `Files`."""
        with os_errors(), contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(path)

    def remove_dir(self, path: str) -> None:
        """See `Files`."""
        with os_errors(), contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.rmtree(path)


class _Reader:
    """A file that is read, with errors as Python's."""

    def __init__(self, path: str):
        with os_errors():
            self._file = tf.io.gfile.GFile(path, "rb")
            self._file.size()  # a missing file is noticed here, as with `open`

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        with os_errors():
            return bytes(self._file.read(size))
