"""TensorBoard's event files, for which training never stops, and in which a resumed training goes on.

Names and first records of files are those of `tensorboard/summary/writer/event_file_writer.py`. A thread writes, from a
queue with a bound: a disk that is full or does not answer stops nobody.
"""

from __future__ import annotations

import itertools
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog, SourceMetadata

__all__ = ["EventFile", "drop_points"]

_FLUSH_INTERVAL_S = 5.0
_QUEUE_LENGTH = 1000  # points that come while so many wait are left out: the disk does not answer
_WAIT_LIMIT_S = 10.0  # for a disk that does not answer
_number = itertools.count()


class EventFile:
    """A new event file of a run. After a failure it takes everything and writes nothing.

    Args:
        directory: Of the run.
        first_step: Of the points to come: TensorBoard forgets points from it on that are in earlier files of the run;
            None if it is to forget none.
    """

    def __init__(self, directory: str, first_step: int | None) -> None:
        self._directory = directory
        self._has_failed = False
        self._queue: queue.Queue[bytes | threading.Event | None] = queue.Queue(_QUEUE_LENGTH)
        self._thread = threading.Thread(target=self._write_all, name=f"event file of {directory}", daemon=True)
        self._thread.start()
        source = SourceMetadata(writer="tfdist")
        self._put(Event(wall_time=time.time(), file_version="brain.Event:2", source_metadata=source))
        if first_step is not None:
            start = SessionLog(status=SessionLog.START)
            self._put(Event(wall_time=time.time(), step=first_step, session_log=start))

    def add(self, summary: Any, step: int) -> None:
        """Puts a `Summary` in line."""
        event = Event(wall_time=time.time(), step=step)
        event.summary.MergeFromString(summary.SerializeToString())  # TensorFlow's class or TensorBoard's
        self._put(event)

    def flush(self) -> None:
        """Waits until all is with the system, for 10 seconds at most."""
        done, until = threading.Event(), time.monotonic() + _WAIT_LIMIT_S
        self._put(done)
        while not (self._has_failed or done.wait(0.05)):
            if time.monotonic() > until:
                self._give_up(f"the disk has not answered for {_WAIT_LIMIT_S:.0f} s")

    def close(self) -> None:
        """Writes all, within 10 seconds. Nothing may follow."""
        self._put(None)
        self._thread.join(_WAIT_LIMIT_S)
        if self._thread.is_alive():
            self._give_up(f"the disk has not answered for {_WAIT_LIMIT_S:.0f} s")

    def _put(self, item: Event | threading.Event | None) -> None:
        if self._has_failed:
            return
        try:
            self._queue.put_nowait(item.SerializeToString() if isinstance(item, Event) else item)
        except queue.Full:
            self._give_up(f"{_QUEUE_LENGTH} points wait for the disk")

    def _give_up(self, problem: object) -> None:
        if not self._has_failed:
            self._has_failed = True
            logging.warning(
                "TensorBoard's files in %s are written no more, training goes on. Received: %s. Fix: make room on the "
                "disk, or give another log_dir.",
                self._directory,
                problem,
            )

    def _write_all(self) -> None:
        try:
            tf.io.gfile.makedirs(self._directory)
            name = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_number)}"
            path = os.path.join(self._directory, f"events.out.tfevents.{name}")
            with tf.io.TFRecordWriter(path) as writer:
                flush_at = 0.0  # the first points at once
                while not self._has_failed:
                    try:
                        item = self._queue.get(timeout=_FLUSH_INTERVAL_S)
                    except queue.Empty:
                        item = b""
                    if isinstance(item, bytes):
                        if item:
                            writer.write(item)
                        if time.monotonic() < flush_at:
                            continue
                    writer.flush()
                    flush_at = time.monotonic() + _FLUSH_INTERVAL_S
                    if not tf.io.gfile.exists(path):
                        raise FileNotFoundError(f"{path} was removed")
                    if isinstance(item, threading.Event):
                        item.set()
                    if item is None:
                        return
        except Exception as error:  # whatever it is, training matters more
            self._give_up(f"{type(error).__name__}: {error}")


def drop_points(directory: str, is_kept: Callable[[str, int], bool]) -> None:
    """Takes points out of the event files of a run that nobody writes any more.

    A file is replaced as a whole, so that it is complete at any moment. What cannot be read or written stays as it is,
    and a warning says so.

    Args:
        directory: Of the run; it need not exist.
        is_kept: Tells by tag and step.
    """
    try:
        names = tf.io.gfile.listdir(directory) if tf.io.gfile.isdir(directory) else []
        for name in names:
            if "tfevents" in name:
                _drop_from(os.path.join(directory, name), is_kept)
    except (OSError, tf.errors.OpError) as error:
        logging.warning("Points that are to be written again stay in %s, too: %s", directory, error)


def _drop_from(path: str, is_kept: Callable[[str, int], bool]) -> None:
    kept, has_dropped = [], False
    for record in RawEventFileLoader(path).Load():
        event = Event.FromString(record)
        if event.HasField("summary"):
            values = [value for value in event.summary.value if is_kept(value.tag, event.step)]
            if len(values) < len(event.summary.value):
                has_dropped = True
                if not values:
                    continue
                del event.summary.value[:]
                event.summary.value.extend(values)
        kept.append(event)
    if has_dropped:
        written = f"{path}.rewritten".replace("tfevents", "events")  # TensorBoard must not read it
        with tf.io.TFRecordWriter(written) as writer:
            for event in kept:
                writer.write(event.SerializeToString())
        tf.io.gfile.rename(written, path, overwrite=True)
