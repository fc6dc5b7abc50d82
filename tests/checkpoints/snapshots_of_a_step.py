"""A snapshot that depends on its step in every value, so that a mixture of two is seen."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfdist.snapshots import Snapshot


def snapshot_of(step, task=0):
    """The state of a step, for a task."""
    return Snapshot(
        tensors={
            "weights/kernel": np.arange(300, dtype=np.float32).reshape(20, 15) + step,
            "weights/half": tf.cast(tf.range(8) + step, tf.bfloat16),
            "names": tf.constant(["a", f"step {step}"]),
            "iterations": np.int64(step),
        },
        own_tensors={"position": np.array([step, task], np.int64)},
        record={
            "epoch": step // 10,
            "history": {"loss": [0.1 * step, float("nan")]},
            "metrics": {"loss": 1.0 / (step + 1)},
        },
        own_record={"task": task, "step": step},
    )


def step_of(snapshot, task=0):
    """The step of a restored snapshot, after looking at every value of it."""
    step = snapshot.record["epoch"] * 10 + int(snapshot.tensors["iterations"].numpy()) % 10
    expected = snapshot_of(step, task)
    assert sorted(snapshot.tensors) == sorted(expected.tensors)
    for name, value in expected.tensors.items():
        restored = snapshot.tensors[name]
        assert restored.dtype == tf.convert_to_tensor(value).dtype, name
        np.testing.assert_array_equal(restored.numpy(), np.asarray(value), err_msg=name)
    np.testing.assert_array_equal(snapshot.own_tensors["position"].numpy(), expected.own_tensors["position"])
    assert repr(snapshot.record) == repr(expected.record)  # by their text, NaN equals NaN
    assert snapshot.own_record == expected.own_record
    return step
