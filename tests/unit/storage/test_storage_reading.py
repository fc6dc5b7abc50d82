"""What a directory holds, and every damage to a file of it is found."""

import os

import pytest

from tfdist.checkpointing.naming import MANIFEST
from tfdist.storage.files import LocalFiles
from tfdist.storage.reading import find_checkpoints, find_damage

FILES = LocalFiles()


def names(found):
    return [str(one.name) for one in found]


def test_a_directory_that_does_not_exist_holds_nothing(tmp_path):
    assert find_checkpoints(FILES, str(tmp_path / "none")) == []


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        find_checkpoints(FILES, str(tmp_path / "file"))


def test_the_newest_comes_first(tmp_path, make_checkpoint):
    made = [
        make_checkpoint(step, run=run, time=time)
        for step, run, time in ((9, "aa", 1.0), (10, "bb", 3.0), (10, "cc", 2.0), (100, "aa", 0.5))
    ]
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    (tmp_path / "step-9").mkdir()
    found = find_checkpoints(FILES, str(tmp_path))
    assert names(found) == [made[at].name for at in (3, 1, 2, 0)]
    assert all(one.is_usable for one in found)
    assert all(find_damage(FILES, one) == "" for one in found)


def test_an_unfinished_one_is_known_as_such(tmp_path, make_checkpoint):
    make_checkpoint(10, is_complete=False)
    (found,) = find_checkpoints(FILES, str(tmp_path))
    assert not found.is_complete
    assert f"{MANIFEST} is missing" in found.problem


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    os.truncate(path, 0)


def lengthen(path):
    path.write_bytes(path.read_bytes() + b"\0")


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


DAMAGES = {
    "removed": lambda path: path.unlink(),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "truncated": truncate,
    "emptied": empty,
    "longer": lengthen,
    "first byte": lambda path: flip(path, 0),
    "a middle byte": lambda path: flip(path, path.stat().st_size // 2),
    "last byte": lambda path: flip(path, -1),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["state.json", "state.index", MANIFEST])
def test_every_damage_is_found_and_names_the_file(damage, file, tmp_path, make_checkpoint):
    path = make_checkpoint(10)
    DAMAGES[damage](path / file)
    (found,) = find_checkpoints(FILES, str(tmp_path))
    problem = find_damage(FILES, found)
    assert f"{path}/{file}" in problem
    if file != MANIFEST:
        assert found.is_complete
    elif damage in ("removed", "truncated", "emptied"):
        assert not found.is_complete  # as a killed save leaves it


def test_a_manifest_in_the_directory_of_another_step(tmp_path, make_checkpoint):
    path = make_checkpoint(10)
    path.rename(tmp_path / "step-000000020-aa-0")
    (found,) = find_checkpoints(FILES, str(tmp_path))
    assert found.problem.endswith("it is of step 10")
