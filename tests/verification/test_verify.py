"""`tfdist.verify` from end to end, in child processes."""

import models
import pytest
import tensorflow as tf

import tfdist
from tfdist.verification import Cause


def overlapping(context):
    """Ignores its context: every worker reads everything."""
    return models.batches(batch=context.get_per_replica_batch_size(8))


def test_overlapping_shards():
    report = tfdist.verify(models.network, overlapping, steps=3)
    [found] = report.findings
    print(found)
    assert (found.step, found.what, found.name) == (0, "rows", "of replicas 0 and 1")
    assert found.cause is Cause.OVERLAPPING_SHARDS
    assert report.status == 1
    assert "DIFFERS" in str(report)


def sharded(context):
    size = context.get_per_replica_batch_size(8)
    data = models.batches().unbatch().shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.shuffle(100).batch(size)


@pytest.mark.campaign
def test_proper_shards():
    report = tfdist.verify(models.network, sharded, steps=3)
    assert report.passed, report
    assert report.status == 0
    assert str(report).startswith("tfdist verify: same as one device, 3 steps on 2 replicas")


def test_a_model_that_cannot_be_built():
    def build():
        raise RuntimeError("no such model")

    with pytest.raises(tfdist.errors.LaunchError, match="RuntimeError: no such model"):
        tfdist.verify(build, models.batches())


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"build_fn": 3}, "build_fn"),
        ({"build_fn": lambda strategy: None}, "build_fn"),
        ({"dataset": [1, 2]}, "dataset"),
        ({"steps": 0}, "steps"),
        ({"replicas": 1}, "replicas"),
        ({"strategy": "horovod"}, "strategy"),
    ],
)
def test_arguments_that_cannot_be(arguments, what):
    with pytest.raises(tfdist.errors.ArgumentError, match=f"verify cannot use this {what}"):
        tfdist.verify(**{"build_fn": models.network, "dataset": tf.data.Dataset.range(3), **arguments})


def test_a_function_that_cannot_be_sent():
    data = models.batches()
    with pytest.raises(tfdist.errors.ArgumentError, match="cannot be sent"):
        tfdist.verify(models.network, lambda: data)
