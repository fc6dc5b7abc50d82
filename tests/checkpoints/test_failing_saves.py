"""What the system refuses: no exception reaches training, complete checkpoints stay, and the next save tries again."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from absl import logging
from faulty_files import FaultyFiles, record_operations
from snapshots_of_a_step import snapshot_of, step_of

from tfdist.checkpointing import Retention
from tfdist.snapshots import CheckpointStore

HERE = Path(__file__).parent
LIMIT_S = 120


@pytest.fixture(autouse=True)
def warnings(monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))
    return logged


def operations_of_a_save(directory):
    """What the third save of a store does, with a retention of two."""
    operations = []
    store = CheckpointStore(directory, retention=Retention(keep_newest=2), files=FaultyFiles(lambda *_: None))
    for step in (6, 7):
        assert store.save(snapshot_of(step), step=step, epoch=0, wait=True)
    store._files.fault = record_operations(operations)
    assert store.save(snapshot_of(8), step=8, epoch=0, wait=True)
    store._files.fault = lambda *_: None
    store.close()
    return operations


@pytest.mark.parametrize("number", [errno.ENOSPC, pytest.param(errno.ESTALE, marks=pytest.mark.campaign)])
def test_an_error_at_every_operation(number, tmp_path, warnings):
    operations = operations_of_a_save(tmp_path / "all")
    committed_at = 1 + operations.index(("written", "manifest.json"))
    assert len(operations) > 20
    for at, (operation, _) in enumerate(operations):
        directory = tmp_path / f"{number}-{at}"
        store = CheckpointStore(directory, retention=Retention(keep_newest=2), files=FaultyFiles(lambda *_: None))
        for step in (6, 7):
            assert store.save(snapshot_of(step), step=step, epoch=0, wait=True)
        fired = []
        count = iter(range(1000))

        def fault(operation, path, at=at, count=count, fired=fired):
            if next(count) == at:
                fired.append(operation)
                raise OSError(number, os.strerror(number))

        store._files.fault = fault
        succeeded = store.save(snapshot_of(8), step=8, epoch=0, wait=True)
        assert fired == [operation]
        # Removing what is old is no part of the save: its failure spoils none.
        old_is_removed = operation.startswith("remove") or (operation, at > committed_at) == ("sync_dir", True)
        snapshot = CheckpointStore(directory).restore()[0]
        if succeeded:
            assert old_is_removed
            assert step_of(snapshot) == 8
        else:
            assert len(store.problems) == 1
            assert store.problems[0].count == 1
            # An error after the manifest is on disk leaves no complete checkpoint either: it is removed.
            assert step_of(snapshot) == 7
        store._files.fault = lambda *_: None
        assert store.save(snapshot_of(9), step=9, epoch=0, wait=True)
        assert step_of(CheckpointStore(directory).restore()[0]) == 9
        store.close()
        shutil.rmtree(directory)


def test_a_kind_of_failure_is_reported_once(tmp_path, warnings):
    numbers = iter([errno.ENOSPC, errno.ENOSPC, errno.EACCES, errno.ENOSPC])

    def fault(operation, path):
        if operation == "write" and path.endswith("manifest.json"):
            raise OSError(next(numbers), "refused")

    store = CheckpointStore(tmp_path, files=FaultyFiles(fault))
    for step in range(1, 5):
        assert not store.save(snapshot_of(step), step=step, epoch=0, wait=True)
    assert [(problem.kind, problem.step, problem.count) for problem in store.problems] == [
        ("full disk", 1, 3),
        ("no permission", 3, 1),
    ]
    assert len(warnings) == 2
    assert "Free space, or keep fewer checkpoints" in warnings[0]
    store.close()
    assert warnings[2] == "4 of 4 checkpoints could not be written: full disk (3), no permission (1)"


def test_a_vanished_directory_is_not_made_anew(tmp_path, warnings):
    directory, away = tmp_path / "mount" / "ckpt", tmp_path / "away"
    store = CheckpointStore(directory)
    assert store.save(snapshot_of(7), step=7, epoch=0, wait=True)
    directory.rename(away)
    assert not store.save(snapshot_of(8), step=8, epoch=0, wait=True)
    assert store.problems[0].kind == "vanished directory"
    assert "Mount it again" in warnings[0]
    assert not directory.exists()
    away.rename(directory)
    assert step_of(store.restore()[0]) == 7
    assert store.save(snapshot_of(9), step=9, epoch=0, wait=True)
    assert step_of(store.restore()[0]) == 9
    store.close()


def run(script, *arguments, **options):
    """Runs a script in a process of its own, with this directory's modules."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=env,
        **options,
    )


REALLY_FULL = """
    import os, sys
    import numpy as np
    from snapshots_of_a_step import snapshot_of, step_of
    from tfdist.checkpointing import Retention
    from tfdist.snapshots import CheckpointStore, Snapshot
    directory = sys.argv[1]
    store = CheckpointStore(directory, retention=Retention(keep_newest=2))
    assert store.save(snapshot_of(7), step=7, epoch=0, wait=True), store.problems
    {fill}
    assert not store.save({big}, step=8, epoch=0, wait=True)
    assert [problem.kind for problem in store.problems] == ["full disk"], store.problems
    assert step_of(CheckpointStore(directory).restore()[0]) == 7
    assert len([name for name in os.listdir(directory) if name.startswith("step-")]) == 1, os.listdir(directory)
    {free}
    assert store.save(snapshot_of(9), step=9, epoch=0, wait=True), store.problems
    assert step_of(CheckpointStore(directory).restore()[0]) == 9
    store.close()
    print("done")
"""
BIG = "Snapshot(tensors={'w': np.zeros(600_000, np.float32)})"


def test_a_limit_on_the_size_of_files(tmp_path):
    """The system's own error, from within TensorFlow's writer, wherever the test runs."""
    script = REALLY_FULL.format(
        fill="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))",
        big=BIG,
        free="resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))",
    )
    done = run(script, tmp_path)
    assert done.stdout == "done\n", done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    "left", [3000, pytest.param(0, marks=pytest.mark.campaign), pytest.param(700_000, marks=pytest.mark.campaign)]
)
def test_a_disk_that_is_really_full(left, tmp_path):
    """A small disk, filled so that a few bytes are left: for nothing, for records, for the half of the tensors."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this process may not mount a disk")
    try:
        fill = f"""
    os.makedirs(directory, exist_ok=True)
    with open(sys.argv[1] + "/../fill", "wb", buffering=0) as file:
        room = os.statvfs(directory)
        file.write(bytes(max(room.f_bavail * room.f_frsize - {left}, 0)))
    """
        script = REALLY_FULL.format(fill=fill, big=BIG, free='os.remove(sys.argv[1] + "/../fill")')
        done = run(script, disk / "ckpt")
        assert done.stdout == "done\n", done.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_no_permission():
    """A directory of somebody else's, before the first save and later. Where tests run as root, nobody saves."""
    script = """
        import os, sys
        import tensorflow, tfdist.snapshots
        from snapshots_of_a_step import snapshot_of, step_of
        from tfdist.snapshots import CheckpointStore
        def permit(mode):
            for path in (place, place + "/ckpt"):
                if os.path.isdir(path):
                    os.chmod(path, mode)
        for first in (True, False):
            place = sys.argv[1] + f"/{first}"
            os.mkdir(place)
            store = CheckpointStore(place + "/ckpt")
            if not first:
                assert store.save(snapshot_of(7), step=7, epoch=0, wait=True)
            permit(0o555)
            if os.getuid() == 0:
                os.seteuid(65534)
            assert not store.save(snapshot_of(8), step=8, epoch=0, wait=True)
            assert [problem.kind for problem in store.problems] == ["no permission"], store.problems
            found = CheckpointStore(place + "/ckpt").restore()
            assert found is None if first else step_of(found[0]) == 7
            os.seteuid(os.getuid())
            permit(0o755)
            assert store.save(snapshot_of(9), step=9, epoch=0, wait=True), store.problems
            assert step_of(store.restore()[0]) == 9
            store.close()
        print("done")
    """
    with tempfile.TemporaryDirectory() as place:  # those above pytest's are closed to others
        os.chmod(place, 0o755)
        done = run(script, place)
    assert done.stdout == "done\n", done.stderr
