"""The stacks that a task wrote when it was asked to, shortened to what tells where it hangs. Pure."""

from __future__ import annotations

import re

__all__ = ["shorten_stacks"]

_THREAD = re.compile(r"^(Current thread|Thread) 0x")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_LIBRARY = re.compile(r"site-packages|/lib(64)?/python3|<frozen|<string>")
_INNERMOST = 2
_MOST_THREADS = 4


def shorten_stacks(text: str) -> list[str]:
    """A dump of `faulthandler`, shortened.

    Args:
        text: What it wrote.

    Returns:
        Lines: of the main thread, and of others that are in code of the user's, the innermost frames and those of the
        user's. Empty where the task wrote nothing.
    """
    threads: list[list[tuple[str, bool]]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif (frame := _FRAME.match(line)) and threads:
            shown = f"{frame['file']}:{frame['line']} in {frame['function']}"
            threads[-1].append((shown, not _LIBRARY.search(frame["file"])))
    threads = [frames for frames in threads if frames]
    if not threads:
        return []
    main = threads.pop()  # faulthandler writes it last
    chosen = [main, *(frames for frames in threads if any(is_users for _, is_users in frames))][:_MOST_THREADS]
    lines: list[str] = []
    for number, frames in enumerate(chosen):
        lines.append("main thread, innermost first:" if number == 0 else "another thread:")
        kept = [shown for depth, (shown, is_users) in enumerate(frames) if depth < _INNERMOST or is_users]
        lines += [f"  {shown}" for shown in kept]
    return lines
