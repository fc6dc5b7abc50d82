"""The stacks that a task wrote when it was asked to, shortened to what tells where it hangs. Pure."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["find_place", "shorten_stacks"]

_THREAD = re.compile(r"^(Current thread|Thread) 0x")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_LIBRARY = re.compile(r"site-packages|/lib(64)?/python3|<frozen|<string>")
_OWN = f"{Path(__file__).parents[1]}/"
#: Files of TensorFlow 2.18 to 2.21 and Keras 3.8 to 3.15 (probes: tests/tensorflow/test_files_in_stacks.py). Where they
#: are called otherwise, less is said of the place.
_TAKES_INPUT = re.compile(r"tensorflow/python/data/ops/iterator_ops|keras/src/trainers/(data_adapters|epoch_iterator)")
_FEEDS_INPUT = re.compile(r"tensorflow/python/data/ops/from_generator_op|keras/src/trainers/data_adapters")
_CALLED_BY_GRAPH = re.compile(r"tensorflow/python/ops/script_ops")
_INNERMOST = 2
_MOST_THREADS = 4


def shorten_stacks(text: str) -> list[str]:
    """A dump of `faulthandler`, shortened.

    Args:
        text: The dump.

    Returns:
        Lines: of the main thread, and of others that are in code of the user's or of tfdist's, the innermost frames and
        those of that code. Empty where there is no dump.
    """
    lines: list[str] = []
    for number, frames in enumerate(_chosen(_threads(text))):
        lines.append("main thread, innermost first:" if number == 0 else "another thread:")
        for depth, (file, line, function) in enumerate(frames):
            if depth < _INNERMOST or not _LIBRARY.search(file):
                lines.append(f"  {file}:{line} in {function}")
    return lines


def find_place(text: str) -> str:
    """What a dump of `faulthandler` tells of where a step or its input hangs.

    Args:
        text: The dump.

    Returns:
        The place in words, to be put behind "it waits in"; empty where the stacks do not tell.
    """
    threads = _threads(text)
    if not threads:
        return ""
    main, *others = threads
    if any(_TAKES_INPUT.search(file) for file, _, _ in main):
        return "its input pipeline"
    in_users = [frames for frames in others if any(map(_is_users, frames))]
    feeding = [frames for frames in in_users if any(_FEEDS_INPUT.search(file) for file, _, _ in frames)]
    for frames in in_users:
        if frames not in feeding and any(_CALLED_BY_GRAPH.search(file) for file, _, _ in frames):
            file, line, function = next(frame for frame in frames if _is_users(frame))
            return f"{function} ({file}:{line}), which the step or its input pipeline calls"
    return "its input pipeline" if feeding else ""


_Frame = tuple[str, str, str]


def _threads(text: str) -> list[list[_Frame]]:
    """The frames of each thread, innermost first; the main thread, which faulthandler writes last, comes first."""
    threads: list[list[_Frame]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif (frame := _FRAME.match(line)) and threads:
            threads[-1].append((frame["file"], frame["line"], frame["function"]))
    threads = [frames for frames in threads if frames]
    return threads[-1:] + threads[:-1]


def _chosen(threads: list[list[_Frame]]) -> list[list[_Frame]]:
    others = [frames for frames in threads[1:] if not all(_LIBRARY.search(file) for file, _, _ in frames)]
    return [*threads[:1], *others][:_MOST_THREADS]


def _is_users(frame: _Frame) -> bool:
    return not _LIBRARY.search(frame[0]) and not frame[0].startswith(_OWN)
