"""Kills itself inside saves: `python killed_saves.py DIRECTORY VICTIM`. The parent of the processes that are killed.

Each process is a fork made before TensorFlow's runtime is started, which a `SIGKILL` ends at one operation of a save.
VICTIM is `single`, or the number of one of two tasks. Prints a line of JSON for each: what was done when it was killed.
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


def killer(directory, at):
    """A fault that kills this process at an operation, of which it leaves a note."""
    count = iter(range(10_000))

    def fault(operation, path):
        if next(count) == at:
            with open(f"{directory}.killed", "w") as file:
                json.dump([operation, path.rsplit("/", 1)[1]], file)
            os.kill(os.getpid(), signal.SIGKILL)

    return fault


def note_of_kill(place, status):
    assert os.WIFSIGNALED(status), status
    assert os.WTERMSIG(status) == signal.SIGKILL
    with open(f"{place}.killed") as file:
        operation, name = json.load(file)
    return {"place": place, "operation": operation, "name": name}


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


def save_by_two_tasks(directory, run, steps):
    """Saves as two tasks do, a thread each."""
    stores = [CheckpointStore(directory, task=task, num_tasks=2, run=run, retention=RETENTION) for task in range(2)]
    for step in steps:
        for task in (1, 0):
            assert stores[task].save(snapshot_of(step, task), step=step, epoch=0)
        assert all(store.wait() for store in stores), [store.problems for store in stores]


def save_as_task(directory, task, fault=lambda *_: None, part_timeout_s=60.0):
    """Saves step 8 as one of two tasks. Ends with status 1 if that fails."""
    files = FaultyFiles(fault)
    store = CheckpointStore(
        directory, task=task, num_tasks=2, run="bb", retention=RETENTION, part_timeout_s=part_timeout_s, files=files
    )
    if not store.save(snapshot_of(8, task), step=8, epoch=0, wait=True):
        os._exit([problem.kind for problem in store.problems] == ["missing part"] and 3)


def kill_one_of_two(directory, victim):
    template = f"{directory}/template"
    assert in_a_fork(lambda: save_by_two_tasks(template, "aa", (6, 7))) == 0
    at = 0
    while True:
        place = f"{directory}/{at:03d}"
        shutil.copytree(template, place)
        if victim == 0:
            assert in_a_fork(lambda place=place: save_as_task(place, 1)) == 0
        status = in_a_fork(lambda place=place, at=at: save_as_task(place, victim, killer(place, at)))
        if status == 0:  # the save has no more operations
            break
        kill = note_of_kill(place, status)
        if victim == 1:  # it is gone: what does the chief do?
            status = in_a_fork(lambda place=place: save_as_task(place, 0, part_timeout_s=0.3))
            kill["chief"] = {0: "complete", 3: "missing part"}[os.waitstatus_to_exitcode(status)]
        print(json.dumps(kill), flush=True)
        at += 1


def kill_a_single_task(directory):
    template = f"{directory}/template"
    assert in_a_fork(lambda: prepare(template)) == 0
    at = 0
    while True:
        place = f"{directory}/{at:03d}"
        shutil.copytree(template, place)
        status = in_a_fork(lambda place=place, at=at: save(place, 8, killer(place, at)))
        if status == 0:  # the save has no more operations
            shutil.rmtree(place)
            break
        print(json.dumps(note_of_kill(place, status)), flush=True)
        at += 1
    for attempt in range(20):
        place = f"{directory}/tensorflow-{attempt}"
        shutil.copytree(template, place)
        status = in_a_fork(lambda place=place: kill_in_tensorflow(place))
        if status != 0:
            print(json.dumps({"place": place, "operation": "SaveV2", "name": ""}), flush=True)
            break


if __name__ == "__main__":
    if sys.argv[2] == "single":
        kill_a_single_task(sys.argv[1])
    else:
        kill_one_of_two(sys.argv[1], int(sys.argv[2]))
