"""What is removed and what is not: leftovers, and checkpoints that no rule keeps."""

import json
import os
import subprocess
import sys
import time

import pytest

from tfdist.checkpointing.naming import MANIFEST, run_note_name
from tfdist.checkpointing.retention import Retention
from tfdist.checkpointing.sealing import seal, unseal
from tfdist.storage.files import LocalFiles
from tfdist.storage.pruning import remove_unkept
from tfdist.storage.reading import find_checkpoints
from tfdist.storage.removal import remove_checkpoint
from tfdist.storage.runs import LEFTOVER_AGE_S, clean_leftovers, write_run_note

FILES = LocalFiles()


class RecordingFiles(LocalFiles):
    def __init__(self):
        self.removed = []

    def remove_file(self, path):
        self.removed.append(path.rsplit("/", 1)[1])
        super().remove_file(path)


def test_the_manifest_goes_first(make_checkpoint):
    path = make_checkpoint(10)
    files = RecordingFiles()
    remove_checkpoint(files, str(path))
    assert files.removed[0] == MANIFEST
    assert not path.exists()
    remove_checkpoint(files, str(path))  # gone already: fine


def test_only_what_no_rule_keeps_goes(tmp_path, make_checkpoint):
    for step in (10, 20, 30, 40):
        make_checkpoint(step)
    make_checkpoint(5, number=7, is_complete=False)
    removed = remove_unkept(FILES, str(tmp_path), Retention(keep_newest=2))
    assert [name[:14] for name in removed] == ["step-000000010", "step-000000020"]
    assert [found.name.step for found in find_checkpoints(FILES, str(tmp_path))] == [40, 30, 5]


def test_damaged_ones_neither_count_nor_go(tmp_path, make_checkpoint):
    for step in (10, 20):
        make_checkpoint(step)
    os.truncate(make_checkpoint(30) / "state.index", 3)
    known = make_checkpoint(40)
    assert remove_unkept(FILES, str(tmp_path), Retention(keep_newest=1), damaged=(known.name,)) == [
        "step-000000010-aa-0"
    ]
    assert [found.name.step for found in find_checkpoints(FILES, str(tmp_path))] == [40, 30, 20]


@pytest.fixture
def clean(tmp_path):
    def clean(now=None, run="ff", number=3):
        now = time.time() if now is None else now
        return clean_leftovers(FILES, str(tmp_path), run=run, number=number, now=now)

    return clean


def note_of(tmp_path, run, **changes):
    write_run_note(FILES, str(tmp_path), run)
    path = tmp_path / run_note_name(run)
    path.write_bytes(seal({**unseal(path.read_bytes()), **changes}))


def ended_process():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait(timeout=60)
    return done.pid


def test_leftovers_of_this_run(clean, make_checkpoint):
    for number in (1, 2, 3, 4):
        make_checkpoint(number * 10, run="ff", number=number, is_complete=False)
    assert sorted(clean()) == ["step-000000010-ff-1", "step-000000020-ff-2"]  # 3 is being made


def test_complete_and_damaged_ones_are_no_leftovers(clean, tmp_path, make_checkpoint):
    note_of(tmp_path, "aa", pid=ended_process())
    make_checkpoint(10)
    os.truncate(make_checkpoint(20) / "state.index", 3)
    path = make_checkpoint(30) / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"epoch": 0', b'"epoch": 1'))
    assert clean(now=time.time() + 10 * LEFTOVER_AGE_S) == []


def test_a_dead_run_is_cleaned_at_once_and_a_live_one_never(clean, tmp_path, make_checkpoint):
    note_of(tmp_path, "dd", pid=ended_process())
    note_of(tmp_path, "bb")  # this process, which lives
    note_of(tmp_path, "cc", start="1")  # another process had this number
    make_checkpoint(9, run="dd")  # complete: it stays, and its note tells that its run is over
    for run in ("bb", "cc", "dd"):
        make_checkpoint(10, run=run, is_complete=False)
    late = time.time() + 10 * LEFTOVER_AGE_S
    assert sorted(clean(now=late)) == ["step-000000010-cc-0", "step-000000010-dd-0"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        *("run-bb.json", "run-dd.json", "step-000000009-dd-0", "step-000000010-bb-0")
    ]


@pytest.mark.parametrize("change", [{"host": "another"}, {"boot": "before"}, {"pid_namespace": "pid:[1]"}, None])
def test_what_cannot_be_looked_at_goes_by_age(change, clean, tmp_path, make_checkpoint):
    if change is not None:
        note_of(tmp_path, "aa", **change)
    path = make_checkpoint(10, is_complete=False)
    now = time.time()
    assert clean(now=now + 0.9 * LEFTOVER_AGE_S) == []
    os.utime(path, (now - 2 * LEFTOVER_AGE_S,) * 2)
    os.utime(path / "state.json", (now - 2 * LEFTOVER_AGE_S,) * 2)
    assert clean(now=now) == []  # one of its files is young
    os.utime(path / "state.index", (now - 2 * LEFTOVER_AGE_S,) * 2)
    assert clean(now=now) == [path.name]


def test_a_note_that_is_none_is_no_note(clean, tmp_path, make_checkpoint):
    (tmp_path / run_note_name("aa")).write_text(json.dumps({"pid": 1}))
    make_checkpoint(10, is_complete=False)
    (tmp_path / run_note_name("bb")).write_text("")
    assert clean() == []
    assert clean(now=time.time() + 2 * LEFTOVER_AGE_S) == ["step-000000010-aa-0"]
    assert list(tmp_path.iterdir()) == []
