"""Kills itself inside saves: `python killed_saves.py DIRECTORY`. The parent of the processes that are killed.

Each process is a fork made before TensorFlow's runtime is started, which a `SIGKILL` ends at one operation of a save.
Prints a line of JSON for each: what was done when it was killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time

import numpy as np
from faulty_files import FaultyFiles
from snapshots_of_a_step import snapshot_of

from tfdist.checkpointing import Retention
from tfdist.snapshots import CheckpointStore, Snapshot

RETENTION = Retention(keep_newest=2)
LIMIT_S = 60.0


def in_a_fork(work):
    """Runs work in a fork; returns its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError(f"a save was not over after {LIMIT_S} seconds")


def prepare(directory):
    """Two complete checkpoints of a run that has ended, and what a third save of it left."""
    store = CheckpointStore(directory, retention=RETENTION)
    for step in (6, 7):
        assert store.save(snapshot_of(step), step=step, epoch=0, wait=True)
    os.makedirs(f"{directory}/step-000000008-{store._run}-2")
    os._exit(0)  # and the note of the run stays


def save(directory, step, fault=lambda *_: None):
    store = CheckpointStore(directory, retention=RETENTION, files=FaultyFiles(fault))
    assert store.save(snapshot_of(step), step=step, epoch=0, wait=True), store.problems
    store.close()


def kill_at(directory, at):
    """Saves step 8 and is killed at an operation, of which it leaves a note."""
    count = iter(range(10_000))

    def fault(operation, path):
        if next(count) == at:
            with open(f"{directory}.killed", "w") as file:
                json.dump([operation, path.rsplit("/", 1)[1]], file)
            os.kill(os.getpid(), signal.SIGKILL)

    save(directory, 8, fault)


def kill_in_tensorflow(directory):
    """Saves a larger step 8 and is killed while TensorFlow writes its tensors."""
    store = CheckpointStore(directory, retention=RETENTION)

    def watch():
        while True:
            for root, _, names in os.walk(directory):
                if any("tempstate" in name and os.stat(f"{root}/{name}").st_size > 0 for name in names):
                    os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    tensors = {f"v{number}": np.zeros(1_000_000, np.float32) for number in range(50)}
    store.save(Snapshot(tensors), step=8, epoch=0, wait=True)


def main(directory):
    template = f"{directory}/template"
    assert in_a_fork(lambda: prepare(template)) == 0
    at = 0
    while True:
        place = f"{directory}/{at:03d}"
        shutil.copytree(template, place)
        status = in_a_fork(lambda place=place, at=at: kill_at(place, at))
        if status == 0:  # the save has no more operations
            shutil.rmtree(place)
            break
        assert os.WIFSIGNALED(status), status
        assert os.WTERMSIG(status) == signal.SIGKILL
        with open(f"{place}.killed") as file:
            operation, name = json.load(file)
        print(json.dumps({"place": place, "operation": operation, "name": name}), flush=True)
        at += 1
    for attempt in range(20):
        place = f"{directory}/tensorflow-{attempt}"
        shutil.copytree(template, place)
        status = in_a_fork(lambda place=place: kill_in_tensorflow(place))
        if status != 0:
            print(json.dumps({"place": place, "operation": "SaveV2", "name": ""}), flush=True)
            break


if __name__ == "__main__":
    main(sys.argv[1])
