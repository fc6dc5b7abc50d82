"""Every file of a checkpoint truncated, changed or removed, one at a time: an older state or a clear error."""

import os

import pytest
from absl import logging
from snapshots_of_a_step import snapshot_of, step_of

from tfdist.errors import CheckpointError
from tfdist.snapshots import CheckpointStore

FILES = (
    "manifest.json",
    *("state.json", "state.index", "state.data-00000-of-00001"),
    *("task-00000.json", "task-00000.index", "task-00000.data-00000-of-00001"),
)


def flip(path, position, bit=0):
    data = bytearray(path.read_bytes())
    data[int(position * (len(data) - 1))] ^= 1 << bit
    path.write_bytes(data)


DAMAGES = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: os.truncate(path, 0),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "all but one byte": lambda path: os.truncate(path, path.stat().st_size - 1),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    **{
        f"bit {bit} at {position}": lambda path, position=position, bit=bit: flip(path, position, bit)
        for position in (0.0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
        for bit in (0, 7)
    },
}


def save(directory, steps, compression=None):
    store = CheckpointStore(directory, compression=compression)
    for step in steps:
        assert store.save(snapshot_of(step), step=step, epoch=0, wait=True)
    store.close()
    return directory / store.last_committed.name


@pytest.fixture
def warnings(monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))
    return logged


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_older_state_and_a_warning_that_names_the_file(damage, compression, tmp_path, warnings):
    newest = save(tmp_path, (7, 8), compression)
    files = sorted(path.name for path in newest.iterdir())
    assert [name.removesuffix(".gz") for name in files] == sorted(FILES)
    for file in files:
        path = newest / file
        data = path.read_bytes()
        DAMAGES[damage](path)
        assert not path.exists() or path.read_bytes() != data  # the fault is there
        store = CheckpointStore(tmp_path)
        assert step_of(store.restore()[0]) == 7
        assert warnings
        assert str(path) in warnings.pop()
        # That checkpoint alone, as a worker reads what the chief has chosen: an error, or (the part of another file
        # is not read) the right values.
        with pytest.raises(CheckpointError, match=file):
            store.restore(newest.name)
        path.write_bytes(data)
        assert step_of(CheckpointStore(tmp_path).restore()[0]) == 8
        assert not warnings


@pytest.mark.parametrize("damage", ["removed", "half", "bit 0 at 0.4"])
@pytest.mark.parametrize("file", FILES)
def test_the_only_one_is_damaged(file, damage, tmp_path, warnings):
    path = save(tmp_path, (7,)) / file
    DAMAGES[damage](path)
    store = CheckpointStore(tmp_path)
    if file == "manifest.json" and damage != "bit 0 at 0.4":
        assert store.restore() is None  # as a save leaves it that did not come to its end
        assert str(path) in warnings.pop()
        return
    with pytest.raises(CheckpointError) as caught:
        store.restore()
    assert str(path) in str(caught.value)


def test_a_damaged_one_is_neither_counted_nor_removed_by_later_saves(tmp_path, warnings):
    newest = save(tmp_path, (7, 8, 9))
    flip(newest / "state.data-00000-of-00001", 0.5)
    store = CheckpointStore(tmp_path)
    assert step_of(store.restore()[0]) == 8
    for step in (9, 10):
        assert store.save(snapshot_of(step), step=step, epoch=0, wait=True)
    store.close()
    assert newest.exists()
    assert sorted(path.name[:14] for path in tmp_path.glob("step-*")) == [
        *("step-000000008", "step-000000009", "step-000000009", "step-000000010")
    ]
    assert step_of(CheckpointStore(tmp_path).restore()[0]) == 10


def test_a_checksum_of_tensorflow_is_looked_at_too(tmp_path, monkeypatch):
    """What was wrong when its digest was made is found by the checksum within the file."""
    from tfdist.snapshots import writing

    original = writing.file_facts

    def damage_first(files, path):
        if path.endswith("state.data-00000-of-00001"):
            damage_first.fired = True
            with open(path, "r+b") as file:
                file.seek(100)
                byte = file.read(1)
                file.seek(100)
                file.write(bytes([byte[0] ^ 1]))
        return original(files, path)

    monkeypatch.setattr(writing, "file_facts", damage_first)
    save(tmp_path, (7,))
    assert damage_first.fired
    with pytest.raises(CheckpointError, match="DataLoss"):
        CheckpointStore(tmp_path).restore()


def test_a_newer_format_is_no_damage(tmp_path, monkeypatch):
    save(tmp_path, (7,))
    monkeypatch.setattr("tfdist.checkpointing.manifest.FORMAT_VERSION", 2)
    newest = save(tmp_path, (8,))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="reads format 1") as caught:
        CheckpointStore(tmp_path).restore()
    assert newest.name in str(caught.value)
