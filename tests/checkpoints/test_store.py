"""What is saved is restored, by the same tasks and by others, and read by TensorFlow alone."""

import gzip
import re
import threading

import numpy as np
import pytest
import tensorflow as tf
from faulty_files import FaultyFiles
from snapshots_of_a_step import snapshot_of, step_of

from tfdist.checkpointing import Retention
from tfdist.errors import ArgumentError, CheckpointError
from tfdist.snapshots import CheckpointStore, Snapshot, new_run

LIMIT_S = 60.0


@pytest.fixture(params=["local", "ram"])
def directory(request, tmp_path):
    return str(tmp_path / "ckpt") if request.param == "local" else f"ram://{tmp_path.name}/ckpt"


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_what_is_saved_is_restored(directory, compression):
    store = CheckpointStore(directory, compression=compression, cluster={"strategy": "none"})
    assert store.restore() is None
    for step in (7, 20, 33):
        assert store.save(snapshot_of(step), step=step, epoch=step // 10)
    assert store.close()
    assert store.problems == ()
    assert store.last_committed.step == 33
    snapshot, restored = CheckpointStore(directory).restore()
    assert (step_of(snapshot), restored.step, restored.epoch, restored.num_tasks) == (33, 33, 3, 1)
    assert restored.manifest.cluster == {"strategy": "none"}
    assert restored.manifest.versions["tensorflow"] == tf.__version__
    assert restored.manifest.metrics == {"loss": 1.0 / 34}


def test_the_state_of_an_iterator(tmp_path):
    def iterate():
        return iter(tf.data.Dataset.range(100).shuffle(20, seed=3).batch(2))

    iterator = iterate()
    before = [next(iterator).numpy().tolist() for _ in range(10)]
    state = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource, external_state_policy=0)
    store = CheckpointStore(tmp_path)
    assert store.save(Snapshot(own_tensors={"iterator": state}), step=10, epoch=0, wait=True)
    store.close()
    rest = [batch.numpy().tolist() for batch in iterator]

    snapshot, _ = CheckpointStore(tmp_path).restore()
    again = iterate()
    tf.raw_ops.DeserializeIterator(
        resource_handle=again._iterator_resource, serialized=snapshot.own_tensors["iterator"]
    )
    assert [batch.numpy().tolist() for batch in again] == rest
    assert len(before) + len(rest) == 50


def test_tensorflow_reads_the_weights_alone(tmp_path):
    store = CheckpointStore(tmp_path / "plain")
    store.save(snapshot_of(7), step=7, epoch=0, wait=True)
    name = store.last_committed.name
    reader = tf.train.load_checkpoint(str(tmp_path / "plain" / name / "state"))
    np.testing.assert_array_equal(reader.get_tensor("weights/kernel"), snapshot_of(7).tensors["weights/kernel"])
    store.close()

    packed = CheckpointStore(tmp_path / "packed", compression="gzip")
    packed.save(snapshot_of(7), step=7, epoch=0, wait=True)
    packed.close()
    for file in ("state.index", "state.data-00000-of-00001"):
        data = (tmp_path / "packed" / packed.last_committed.name / f"{file}.gz").read_bytes()
        (tmp_path / file).write_bytes(gzip.decompress(data))  # what gunzip does
    reader = tf.train.load_checkpoint(str(tmp_path / "state"))
    np.testing.assert_array_equal(reader.get_tensor("weights/kernel"), snapshot_of(7).tensors["weights/kernel"])


def test_nothing_that_could_run_code_is_written(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(snapshot_of(7), step=7, epoch=0, wait=True)
    store.close()
    files = sorted(path.name for path in (tmp_path / store.last_committed.name).iterdir())
    assert files == [
        "manifest.json",
        *("state.data-00000-of-00001", "state.index", "state.json"),
        *("task-00000.data-00000-of-00001", "task-00000.index", "task-00000.json"),
    ]


def save_by_tasks(directory, num_tasks, steps, **arguments):
    """Saves as `num_tasks` tasks do, a thread each; returns the stores, closed."""
    run = new_run()
    stores = [
        CheckpointStore(directory, task=task, num_tasks=num_tasks, run=run, **arguments) for task in range(num_tasks)
    ]

    def work(task):
        for step in steps:
            stores[task].save(snapshot_of(step, task), step=step, epoch=step // 10)
        stores[task].close()

    threads = [threading.Thread(target=work, args=(task,)) for task in range(num_tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return stores


def test_several_tasks(directory):
    stores = save_by_tasks(directory, 3, (7, 14, 21))
    assert [store.problems for store in stores] == [(), (), ()]
    assert [store.last_committed.step if store.last_committed else None for store in stores] == [21, None, None]
    # On 3 tasks again, on 1, and on 4, each of which finds all own parts.
    for num_tasks in (3, 1, 4):
        chief = CheckpointStore(directory, num_tasks=num_tasks, run="ab")
        name = chief.choose()
        for task in range(num_tasks):
            store = CheckpointStore(directory, task=task, num_tasks=num_tasks, run="ab")
            snapshot, restored = store.restore(name)
            assert restored.num_tasks == 3
            for other in range(3):
                tensors, record = restored.own_of(other)
                assert tensors["position"].numpy().tolist() == [21, other]
                assert record == {"task": other, "step": 21}
            if task < 3:
                assert step_of(snapshot, task) == 21
            else:
                assert (snapshot.own_tensors, snapshot.own_record) == ({}, {})
                assert snapshot.tensors["iterations"].numpy() == 21


def test_a_part_that_never_comes_is_named(tmp_path):
    chief = CheckpointStore(tmp_path, num_tasks=3, run="ab", part_timeout_s=0.3)
    other = CheckpointStore(tmp_path, task=1, num_tasks=3, run="ab")
    assert other.save(snapshot_of(7, 1), step=7, epoch=0, wait=True)
    assert not chief.save(snapshot_of(7), step=7, epoch=0, wait=True)
    (problem,) = chief.problems
    assert problem.kind == "missing part"
    assert "no part of task 2 within 0.3 seconds" in problem.message
    assert chief.last_committed is None
    assert chief.restore() is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["run-ab.json"]  # what was written made room again


def test_a_part_that_fails_is_told_to_the_chief(tmp_path):
    def fault(operation, path):
        if operation == "sync_file" and path.endswith("task-00001.index"):
            fault.fired = True
            raise OSError(28, "No space left on device")

    chief = CheckpointStore(tmp_path, num_tasks=2, run="ab", part_timeout_s=10 * LIMIT_S)  # longer than this test
    other = CheckpointStore(tmp_path, task=1, num_tasks=2, run="ab", files=FaultyFiles(fault))
    assert not other.save(snapshot_of(7, 1), step=7, epoch=0, wait=True)
    assert fault.fired
    assert other.problems[0].kind == "full disk"
    assert not chief.save(snapshot_of(7), step=7, epoch=0, wait=True)
    (problem,) = chief.problems
    assert problem.kind == "missing part"
    assert "task 1 could not write its part: OSError: [Errno 28] No space left on device" in problem.message
    other._files.fault = lambda *_: None
    for store in (other, chief):
        assert store.save(snapshot_of(8, store._task), step=8, epoch=0, wait=True)
        store.close()
    assert step_of(chief.restore()[0]) == 8


def test_another_run_does_not_take_parts_of_a_killed_one(tmp_path):
    old = CheckpointStore(tmp_path, task=1, num_tasks=2, run="aa")
    assert old.save(snapshot_of(7, 1), step=7, epoch=0, wait=True)  # and the chief was killed
    chief = CheckpointStore(tmp_path, num_tasks=2, run="bb", part_timeout_s=0.3)
    assert not chief.save(snapshot_of(7), step=7, epoch=0, wait=True)
    assert chief.problems[0].kind == "missing part"


def test_records_are_copied_before_save_returns(tmp_path):
    gate = threading.Event()
    store = CheckpointStore(tmp_path, files=FaultyFiles(lambda *_: gate.wait(LIMIT_S)))
    history = [1.0]
    store.save(Snapshot(record={"loss": history}), step=7, epoch=0)
    history.append(2.0)
    gate.set()
    assert store.wait()
    assert store.restore()[0].record == {"loss": [1.0]}
    store.close()


def test_one_save_is_in_flight_and_the_next_one_waits(tmp_path):
    gate, entered = threading.Event(), threading.Event()

    def fault(operation, path):
        entered.set()
        gate.wait(LIMIT_S)

    store = CheckpointStore(tmp_path, files=FaultyFiles(fault))
    assert store.save(snapshot_of(7), step=7, epoch=0)  # returns while the writer stands
    assert entered.wait(LIMIT_S)
    second = threading.Thread(target=store.save, args=(snapshot_of(8),), kwargs={"step": 8, "epoch": 0})
    second.start()
    second.join(0.2)
    assert second.is_alive()
    gate.set()
    second.join(LIMIT_S)
    assert store.close()
    assert store.problems == ()
    assert step_of(store.restore()[0]) == 8


def test_a_save_that_hangs_stops_no_training(tmp_path):
    gate = threading.Event()
    store = CheckpointStore(tmp_path, files=FaultyFiles(lambda *_: gate.wait(LIMIT_S)), stall_timeout_s=0.2)
    assert store.save(snapshot_of(7), step=7, epoch=0)
    assert not store.save(snapshot_of(8), step=8, epoch=0)
    assert not store.save(snapshot_of(9), step=9, epoch=0, wait=True)  # at once: it is known to hang
    (problem,) = store.problems
    assert (problem.kind, problem.step, problem.count) == ("stalled", 8, 2)
    assert "after 0.2 seconds" in problem.message
    gate.set()
    assert store._writer.wait(LIMIT_S)
    assert store.save(snapshot_of(10), step=10, epoch=1, wait=True)
    assert step_of(store.restore()[0]) == 10
    store.close()


def test_the_same_step_twice_is_two_checkpoints(tmp_path):
    store = CheckpointStore(tmp_path)
    for epoch in (0, 1):
        assert store.save(Snapshot(record={"epoch": epoch}), step=10, epoch=epoch, wait=True)
    assert store.restore()[0].record == {"epoch": 1}
    assert len(list(tmp_path.glob("step-*"))) == 2
    store.close()


def test_retention(directory):
    retention = Retention(keep_newest=2, keep_best=1, monitor="loss", mode="max", keep_every_steps=100)
    store = CheckpointStore(directory, retention=retention)
    for step, loss in ((10, 0.1), (30, 0.9), (50, 0.3), (110, 0.2), (120, 0.2), (130, 0.1), (140, 0.1)):
        assert store.save(Snapshot(record={"metrics": {"loss": loss}}), step=step, epoch=0, wait=True)
    store.close()
    kept = sorted(int(name.split("-")[1]) for name in tf.io.gfile.listdir(directory) if name.startswith("step-"))
    assert kept == [10, 30, 110, 130, 140]


@pytest.mark.parametrize(
    ("record", "place"),
    [
        ({"x": {1, 2}}, r"record\['x'\] is of type set"),
        ({"x": [0, {"y": b"bytes"}]}, r"record\['x'\]\[1\]\['y'\] is of type bytes"),
        ({"x": {3: "three"}}, r"record\['x'\] has the key 3"),
        ({"x": np.ones(2)}, r"record\['x'\] is of type ndarray"),
    ],
)
def test_a_record_that_is_no_json_is_a_problem_and_no_exception(record, place, tmp_path):
    store = CheckpointStore(tmp_path)
    assert not store.save(Snapshot(record=record), step=7, epoch=0, wait=True)
    (problem,) = store.problems
    assert problem.kind == "record"
    assert re.search(place, problem.message)
    store.close()


def test_numbers_of_a_record_come_back_exactly(tmp_path):
    values = {"a": np.float32(0.1), "b": 0.1, "c": np.int64(2**62), "d": np.bool_(True), "e": [float("inf"), None]}
    store = CheckpointStore(tmp_path)
    store.save(Snapshot(record=values), step=7, epoch=0, wait=True)
    record = store.restore()[0].record
    assert record == {"a": float(np.float32(0.1)), "b": 0.1, "c": 2**62, "d": True, "e": [float("inf"), None]}
    store.close()


def test_a_name_that_is_none(tmp_path):
    store = CheckpointStore(tmp_path)
    for name in ("../../etc", "step-000000010-aa-0"):
        with pytest.raises(CheckpointError, match="No checkpoint of"):
            store.restore(name)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"num_tasks": 2}, "run cannot be None"),
        ({"run": "../x"}, "run cannot be '../x'"),
        ({"task": 1}, "task cannot be 1"),
        ({"compression": "zip"}, "compression cannot be 'zip'"),
    ],
)
def test_arguments_that_cannot_be(arguments, expected, tmp_path):
    with pytest.raises(ArgumentError, match=expected):
        CheckpointStore(tmp_path, **arguments)
