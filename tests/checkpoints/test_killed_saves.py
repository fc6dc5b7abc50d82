"""SIGKILL at every operation of a save: what was complete stays, nothing half-written is taken for complete."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from snapshots_of_a_step import snapshot_of, step_of

from tfdist.checkpointing import Retention
from tfdist.snapshots import CheckpointStore

HERE = Path(__file__).parent
LIMIT_S = 280
BEFORE_THE_NOTE = [("make_dirs", "000"), ("write", "run-bb.json"), ("write half", "run-bb.json")]  # of the chief


def kills_of(directory, victim):
    """Lets the saves of a process of its own be killed, at one operation after another."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])}
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_saves.py"), str(directory), victim],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_killed_at_every_operation(tmp_path):
    kills = kills_of(tmp_path, "single")
    operations = [(kill["operation"], kill["name"]) for kill in kills]
    # The faults fired, at every stage of the protocol.
    stages = [
        ("write half", "state.json"),
        ("sync_file", "state.data-00000-of-00001"),
        ("write", "manifest.json"),
        ("write half", "manifest.json"),
        ("written", "manifest.json"),
        ("remove_file", "manifest.json"),  # of the oldest
        ("SaveV2", ""),
    ]
    assert [operations.count(stage) for stage in stages] == [1] * len(stages), operations
    assert len(kills) > 30
    complete_from = operations.index(("written", "manifest.json"))
    for at, kill in enumerate(kills):
        is_complete = complete_from <= at and kill["operation"] != "SaveV2"
        found = CheckpointStore(kill["place"]).restore()
        assert step_of(found[0]) == (8 if is_complete else 7), kill
        if kill["operation"] == "SaveV2":
            assert list(Path(kill["place"]).glob("step-*/*tempstate*"))
        # The next save works, and removes what the killed one left.
        store = CheckpointStore(kill["place"], retention=Retention(keep_newest=2))
        assert store.save(snapshot_of(9), step=9, epoch=0, wait=True), (kill, store.problems)
        store.close()
        assert step_of(store.restore()[0]) == 9
        entries = sorted(path.name for path in Path(kill["place"]).iterdir())
        if kill["operation"] == "write half" and kill["name"].startswith("run-"):
            entries.remove(kill["name"])  # nobody can tell whose it is: it goes when it is an hour old
        left = [name for name in entries if name.startswith("step-")]
        assert [int(name.split("-")[1]) for name in left] == [8 if is_complete else 7, 9], (kill, entries)
        # Beside them there are the notes of their runs, by which leftovers are told from live saves.
        # That of a run whose last checkpoint has just gone goes with the next save.
        assert {f"run-{name.split('-')[2]}.json" for name in left} <= set(entries), (kill, entries)


def check_after_kills(kills, is_complete, cannot_tell=()):
    """The newest complete state is there on both tasks, the next save works, and nothing unfinished is left."""
    for kill, complete in zip(kills, is_complete, strict=True):
        chief, worker = (CheckpointStore(kill["place"], task=task, num_tasks=2, run="cc") for task in range(2))
        name = chief.choose()
        for task, store in enumerate((chief, worker)):
            assert step_of(store.restore(name)[0], task) == (8 if complete else 7), kill
        assert worker.save(snapshot_of(9, 1), step=9, epoch=0, wait=True)
        assert chief.save(snapshot_of(9), step=9, epoch=0, wait=True), (kill, chief.problems)
        chief.close()
        worker.close()
        assert step_of(chief.restore()[0]) == 9
        unfinished = [path for path in Path(kill["place"]).glob("step-*") if not (path / "manifest.json").exists()]
        # Before the chief has said which process it is, nobody can tell a leftover from a live save for an hour.
        assert len(unfinished) == ((kill["operation"], kill["name"]) in cannot_tell), kill


def test_the_worker_of_two_tasks_killed_at_every_operation(tmp_path):
    kills = kills_of(tmp_path, "1")
    operations = [(kill["operation"], kill["name"]) for kill in kills]
    assert operations.count(("write half", "part-00001.json")) == 1
    assert len(kills) > 6
    told_at = operations.index(("written", "part-00001.json"))
    # The chief completes the checkpoint if the lost worker's part is there, and does without it otherwise.
    is_complete = [at >= told_at for at in range(len(kills))]
    assert [kill["chief"] for kill in kills] == ["complete" if it else "missing part" for it in is_complete]
    check_after_kills(kills, is_complete)


@pytest.mark.campaign
def test_the_chief_of_two_tasks_killed_at_every_operation(tmp_path):
    kills = kills_of(tmp_path, "0")
    complete_from = [(kill["operation"], kill["name"]) for kill in kills].index(("written", "manifest.json"))
    assert len(kills) > 25
    check_after_kills(kills, [at >= complete_from for at in range(len(kills))], BEFORE_THE_NOTE)
