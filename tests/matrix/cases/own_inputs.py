"""What each worker reads for itself: files of its own, and what a dataset function returns."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from table import add_case, case

from cases.building import (
    BATCH,
    case_directory,
    compiled,
    is_single,
    outcome,
    regression,
    without_steps,
    worker_position,
)


def _write_records(x, y, files):
    """Writes rows in order to TFRecord files of equal size; one task does."""
    rows = np.concatenate([x, y], axis=1)
    for index, part in enumerate(np.split(rows, files)):
        path = case_directory() / f"{index}.tfrecord"
        scratch = path.with_suffix(f".{np.random.randint(2**31)}.part")
        with tf.io.TFRecordWriter(str(scratch)) as writer:
            for row in part:
                writer.write(row.tobytes())
        scratch.rename(path)
    return [str(case_directory() / f"{index}.tfrecord") for index in range(files)]


def _read_records(paths, batch, policy):
    def parse(record):
        row = tf.io.decode_raw(record, tf.float32)
        return tf.reshape(row[:4], (4,)), tf.reshape(row[4:], (1,))

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    files = tf.data.Dataset.from_tensor_slices(paths)
    return files.interleave(tf.data.TFRecordDataset, cycle_length=1).map(parse).batch(batch).with_options(options)


@case()
def sharded_by_files(strategy):
    x, y = regression(24)
    paths = _write_records(x, y, files=4)
    data = _read_records(paths, 24, tf.data.experimental.AutoShardPolicy.FILE)
    model = compiled(strategy)
    return without_steps(outcome(model, model.fit(data, epochs=5, verbose=0), x, y))


@case()
def files_sharded_by_rows(strategy):
    x, y = regression(24)
    paths = _write_records(x, y, files=1)
    data = _read_records(paths, BATCH, tf.data.experimental.AutoShardPolicy.DATA)
    model = compiled(strategy)
    return without_steps(outcome(model, model.fit(data, epochs=2, verbose=0), x, y))


@case(errors={"multi": r"(?s)cannot be shared out by files.*Fix: Write more files"})
def fewer_files_than_workers(strategy):
    x, y = regression(24)
    paths = _write_records(x, y, files=1)
    data = _read_records(paths, BATCH, tf.data.experimental.AutoShardPolicy.FILE)
    model = compiled(strategy)
    return without_steps(outcome(model, model.fit(data, epochs=2, verbose=0), x, y))


@case()
def not_sharded(strategy):
    """With policy OFF the batches of a worker are its own."""
    x, y = regression(24)
    worker, num_workers = worker_position(strategy)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensor_slices((x, y)).shard(num_workers, worker).batch(BATCH // num_workers)
    model = compiled(strategy)
    return outcome(model, model.fit(data.with_options(options), epochs=2, verbose=0), x, y)


def _dataset_function(x, y, *, endless):
    def make(context):
        data = tf.data.Dataset.from_tensor_slices((x, y))
        data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
        data = data.batch(context.get_per_replica_batch_size(12))  # 12 divides by 2 and by 3 replicas
        return data.repeat() if endless else data

    return make


@case(wide=True, errors={"ps": r"(?s)must return an endless dataset.*repeat\(\)"})
def dataset_function(strategy):
    x, y = regression(24)
    data = _dataset_function(x, y, endless=False)
    model = compiled(strategy)
    history = model.fit(data(tf.distribute.InputContext()) if is_single(strategy) else data, epochs=2, verbose=0)
    return outcome(model, history, x, y)


def _unequal(x, y, *, known):
    """Batches of 4 rows for each replica; the first worker has 16 of 24 rows, the other 8, so they share two steps."""

    def make(context):
        shares = [(0, 16), (16, 24)] if context.num_input_pipelines == 2 else [(0, 24)]
        start, stop = shares[context.input_pipeline_id]
        data = tf.data.Dataset.from_tensor_slices((x[start:stop], y[start:stop])).batch(4)
        return data if known else data.filter(lambda rows, _: tf.shape(rows)[0] > 0)

    return make


def _add_unequal(known):
    def run(strategy):
        x, y = regression(24)
        make = _unequal(x, y, known=known)
        model = compiled(strategy)
        if is_single(strategy):  # what two workers do in step: 8, 8, 4 and 4 rows
            parts = [(np.r_[0:4, 16:20]), (np.r_[4:8, 20:24]), np.r_[8:12], np.r_[12:16]]

            def batches():
                for part in parts:
                    yield x[part], y[part]

            spec = tuple(tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in (x, y))
            data = tf.data.Dataset.from_generator(batches, output_signature=spec)
            data = data.apply(tf.data.experimental.assert_cardinality(4)) if known else data
            return without_steps(outcome(model, model.fit(data, epochs=2, verbose=0), x, y))
        return without_steps(outcome(model, model.fit(make, epochs=2, verbose=0), x, y))

    two = "of two workers"
    name = "workers_with_unequal_numbers_of_batches" + ("" if known else "_that_they_do_not_know")
    add_case(name, run, not_applicable={"mirrored": two, "ps": two})


_add_unequal(True)
_add_unequal(False)


@case(wide=True)
def endless_dataset_function(strategy):
    """Under parameter servers each worker reads its own copy, so rows may come twice: no count of rows is promised."""
    x, y = regression(24)
    data = _dataset_function(x, y, endless=True)
    model = compiled(strategy)
    history = model.fit(
        data(tf.distribute.InputContext()) if is_single(strategy) else data, epochs=2, steps_per_epoch=2, verbose=0
    )
    found = outcome(model, history, x, y)
    found["sync/history/rows"] = found.pop("always/history/rows")
    return found


@case()
def distributed_dataset_from_function(strategy):
    x, y = regression(24)
    data = _dataset_function(x, y, endless=True)
    data = (
        data(tf.distribute.InputContext()) if is_single(strategy) else strategy.distribute_datasets_from_function(data)
    )
    model = compiled(strategy)
    found = outcome(model, model.fit(data, epochs=2, steps_per_epoch=2, verbose=0), x, y)
    found["sync/history/rows"] = found.pop("always/history/rows")
    return found
