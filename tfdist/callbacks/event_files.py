"""TensorBoard's event files, for which training never stops, and in which a resumed training goes on.

Files and records are TensorBoard's own (`tensorboard/summary/writer/event_file_writer.py`): a thread writes, from a
queue with a bound.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter

__all__ = ["EventFile", "drop_points"]

_FLUSH_INTERVAL_S = 5.0
_QUEUE_LENGTH = 1000


class EventFile:
    """A new event file of a run. After a failure it takes everything and writes nothing.

    Args:
        directory: Of the run.
        first_step: Of the points to come: TensorBoard forgets points from it on that are in earlier files of the run;
            None if it is to forget none.
    """

    def __init__(self, directory: str, first_step: int | None) -> None:
        self._directory = directory
        self._writer: Any = None

        def begin() -> None:
            self._writer = EventFileWriter(directory, _QUEUE_LENGTH, _FLUSH_INTERVAL_S)
            if first_step is not None:
                start = SessionLog(status=SessionLog.START)
                self._writer.add_event(Event(wall_time=time.time(), step=first_step, session_log=start))

        self._try(begin)

    def add(self, summary: Any, step: int, wall_time: float | None = None) -> None:
        """Puts a `Summary` in line."""
        if self._writer is not None:
            now = time.time() if wall_time is None else wall_time
            event = Event(wall_time=now, step=step)
            event.summary.MergeFromString(summary.SerializeToString())  # TensorFlow's class or TensorBoard's
            self._try(lambda: self._writer.add_event(event))

    def flush(self) -> None:
        """Waits until all is with the system."""
        if self._writer is not None:
            self._try(self._writer.flush)

    def close(self) -> None:
        """Writes all. Nothing may follow."""
        if self._writer is not None:
            self._try(self._writer.close)
            self._writer = None

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever it is, training matters more
            self._writer = None
            logging.warning(
                "TensorBoard's files in %s are written no more, training goes on. Received: %s: %s. Fix: make room on "
                "the disk, or give another log_dir.",
                self._directory,
                type(error).__name__,
                error,
            )


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
