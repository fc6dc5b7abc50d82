"""`ClusterConfig`: which task is what."""

import copy
import json
import pickle

import pytest

from tfdist.cluster import ClusterConfig
from tfdist.errors import ArgumentError, ClusterConfigError

WORKERS = {"worker": ["a:1", "b:1", "c:1"]}
CHIEF_AND_WORKERS = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
COORDINATED = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


def make(cluster, task_type, index):
    return ClusterConfig.from_mapping({"cluster": cluster, "task": {"type": task_type, "index": index}})


@pytest.mark.parametrize(
    ("cluster", "task_type", "index", "expected"),
    [
        (WORKERS, "worker", 0, (True, 0, 3, "worker 0")),
        (WORKERS, "worker", 2, (False, 2, 3, "worker 2")),
        (WORKERS, "evaluator", 0, (False, None, 3, "evaluator")),  # TensorFlow lets the evaluator be in no list
        (CHIEF_AND_WORKERS, "chief", 0, (True, 0, 3, "chief")),
        (CHIEF_AND_WORKERS, "worker", 0, (False, 1, 3, "worker 0")),  # the chief comes first
        (CHIEF_AND_WORKERS, "worker", 1, (False, 2, 3, "worker 1")),
        (COORDINATED, "chief", 0, (True, None, 2, "chief")),  # it coordinates, and is no worker
        (COORDINATED, "worker", 0, (False, 0, 2, "worker 0")),
        (COORDINATED, "worker", 1, (False, 1, 2, "worker 1")),
        (COORDINATED, "ps", 0, (False, None, 2, "ps 0")),
        ({"worker": ["a:1"]}, "worker", 0, (True, 0, 1, "worker 0")),  # a cluster of one is a cluster
    ],
)
def test_roles(cluster, task_type, index, expected):
    is_chief, worker_index, num_workers, task_name = expected
    config = make(cluster, task_type, index)
    assert not config.is_local
    assert config.has_parameter_servers == ("ps" in cluster)
    assert (config.is_chief, config.worker_index, config.num_workers) == (is_chief, worker_index, num_workers)
    assert config.task_name == task_name
    assert len(config.worker_addresses) == num_workers
    if worker_index is not None:
        assert config.worker_addresses[worker_index] == cluster[task_type][index]


def test_local():
    config = ClusterConfig.local()
    assert config.is_local
    assert config.is_chief
    assert (config.num_workers, config.worker_index, config.worker_addresses) == (1, 0, ())
    assert config.task_name == "this process"
    assert (config.task_type, config.task_id) == (None, None)
    assert config.to_tf_config() == "{}"


def test_master_is_the_old_name_of_chief():
    config = make({"master": ["a:1"], "worker": ["b:1"]}, "master", 0)
    assert config.task_type == "chief"
    assert dict(config.cluster) == {"chief": ("a:1",), "worker": ("b:1",)}


def test_unknown_keys_are_ignored_as_tensorflow_does():
    text = json.dumps(
        {
            "cluster": WORKERS,
            "task": {"type": "worker", "index": 1, "cloud": "x"},
            "rpc_layer": "grpc",
            "environment": "cloud",
        }
    )
    assert ClusterConfig.from_tf_config(text) == make(WORKERS, "worker", 1)


def test_round_trips():
    config = make(COORDINATED, "ps", 0)
    assert ClusterConfig.from_tf_config(config.to_tf_config()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert copy.deepcopy(config).source == config.source == "argument"


def test_equality_is_that_of_the_cluster_not_of_its_source():
    one, other = make(WORKERS, "worker", 1), ClusterConfig.from_tf_config(make(WORKERS, "worker", 1).to_tf_config())
    assert one.source != other.source
    assert one == other
    assert hash(one) == hash(other)
    assert one != make(WORKERS, "worker", 0)


def test_it_cannot_be_changed():
    received = {"worker": ["a:1", "b:1"]}
    config = make(received, "worker", 0)
    received["worker"].append("c:1")
    assert config.num_workers == 2
    with pytest.raises(TypeError):
        config.cluster["worker"] = ()
    with pytest.raises(AttributeError):
        config.task_id = 1


def test_the_constructor_checks_too():
    with pytest.raises(ClusterConfigError, match="out of range"):
        ClusterConfig({"worker": ("a:1",)}, "worker", 1, "test")
    with pytest.raises(ClusterConfigError, match="no index"):
        ClusterConfig({"worker": ("a:1",)}, "worker", None, "test")
    assert issubclass(ClusterConfigError, ArgumentError)
    assert issubclass(ClusterConfigError, ValueError)
