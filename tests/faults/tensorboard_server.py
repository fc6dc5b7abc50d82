"""An unmodified TensorBoard as a server, and what its data API says."""

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

_START_LIMIT_S = 90


@contextlib.contextmanager
def serving(log_dir, *options):
    """Yields the address of a server that has read all files."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(log_dir), "--port", "0", *options]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        try:
            yield _address(process, said)
        finally:
            process.terminate()  # its reader of files ends with it
            process.wait(timeout=30)


def _address(process, said):
    end = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        said.seek(0)
        found = re.search(r"at (http://[^/\s]+)/", said.read())
        if found:
            return found[1]
        time.sleep(0.2)
    said.seek(0)
    raise AssertionError(f"TensorBoard has not started: {said.read()}")


def get(address, path, **query):
    url = f"{address}/data/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def scalar_tags(address, expected):
    """The tags by run, when `expected` of them are there: a server reads its files in the background."""
    end = time.monotonic() + _START_LIMIT_S
    while True:
        tags = {run: set(by_tag) for run, by_tag in get(address, "plugin/scalars/tags").items()}
        if all(tag in tags.get(run, ()) for run, tag in expected):
            return tags
        assert time.monotonic() < end, tags
        time.sleep(0.2)


def scalars(address, run, tag):
    """The points of a curve: (step, value)."""
    return [(step, value) for _, step, value in get(address, "plugin/scalars/scalars", run=run, tag=tag)]
