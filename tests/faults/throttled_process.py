"""A process that gets a part of its time only, as under a CPU quota."""

import contextlib
import os
import signal
import threading

_PERIOD_S = 0.02  # less than a step, so that each step has its part of it


@contextlib.contextmanager
def throttled(pid, share=0.5):
    """Stops a process for the rest of each period, until the block ends. Yields a count of the stops, a list of one."""
    ended, count = threading.Event(), [0]

    def alternate():
        with contextlib.suppress(ProcessLookupError):
            while not ended.wait(_PERIOD_S * share):
                os.kill(pid, signal.SIGSTOP)
                count[0] += 1
                ended.wait(_PERIOD_S * (1 - share))
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
