"""The factories: what they return, what they choose, what they refuse."""

import json
import logging
import re

import keras
import pytest
import tensorflow as tf

import tfdist
from tfdist.errors import ArgumentError, ClusterConfigError, TfdistError
from tfdist.keras_compat.managed_strategies import is_managed
from tfdist.strategies import auto

WORKERS = {"worker": ["127.0.0.1:40001", "127.0.0.1:40002"]}
SERVERS = {"chief": ["127.0.0.1:40000"], **WORKERS, "ps": ["127.0.0.1:40003"]}
ALONE = {"worker": ["127.0.0.1:40001"]}


def cluster(addresses, task_type="worker", index=0):
    return {"cluster": addresses, "task": {"type": task_type, "index": index}}


def test_mirrored_strategy_is_genuine():
    strategy = tfdist.mirrored_strategy()
    assert type(strategy) is tf.distribute.MirroredStrategy
    assert strategy.num_replicas_in_sync == 4
    assert is_managed(strategy)


def test_devices_are_passed_on():
    strategy = tfdist.mirrored_strategy(["CPU:1"])
    assert strategy.extended.worker_devices == ("/job:localhost/replica:0/task:0/device:CPU:1",)


def test_cross_device_ops_are_passed_on():
    ops = tf.distribute.HierarchicalCopyAllReduce()
    strategy = tfdist.mirrored_strategy(cross_device_ops=ops)
    assert strategy.extended._cross_device_ops is ops


@pytest.mark.parametrize("device", ["CPU:9", "GPU:0", "/cpu:4", "/job:localhost/replica:0/task:0/device:CPU:4"])
def test_devices_that_do_not_exist_are_refused(device):
    """TensorFlow would wait for them for ever."""
    with pytest.raises(ArgumentError, match=r"(?s)not there: " + re.escape(device) + r".*CPU:0, CPU:1, CPU:2, CPU:3"):
        tfdist.mirrored_strategy(["CPU:0", device])


@pytest.mark.parametrize("devices", [["CPU:0", "/cpu:1"], ["cpu:2", "/device:CPU:3"]])
def test_devices_under_other_names(devices):
    assert tfdist.mirrored_strategy(devices).num_replicas_in_sync == 2


@pytest.fixture
def choices(monkeypatch):
    """The factories that auto_strategy calls, without their effect."""
    calls = []
    for name in ("mirrored_strategy", "multi_worker_mirrored_strategy", "parameter_server_strategy"):
        monkeypatch.setattr(
            auto, name, lambda *args, _name=name, **options: calls.append((_name, args, options)) or _name
        )
    return calls


@pytest.mark.parametrize(
    ("description", "chosen", "reason"),
    [
        (cluster(SERVERS, "chief"), "parameter_server_strategy", "has parameter servers"),
        (cluster(WORKERS), "multi_worker_mirrored_strategy", "has 2 workers"),
        (cluster(WORKERS, index=1), "multi_worker_mirrored_strategy", "has 2 workers"),
        (cluster({"chief": ["a:1"], "worker": ["b:2"]}, "chief"), "multi_worker_mirrored_strategy", "has 2 workers"),
        (cluster(ALONE), "mirrored_strategy", "no cluster of several workers is described, and it has 4 CPU devices"),
        (None, "mirrored_strategy", "no cluster of several workers is described, and it has 4 CPU devices"),
        (cluster(WORKERS, "evaluator"), "mirrored_strategy", "this process is the evaluator"),
        (cluster(SERVERS, "evaluator"), "mirrored_strategy", "this process is the evaluator"),
    ],
)
@pytest.mark.parametrize("given_as", ["argument", "TF_CONFIG"])
def test_choice(choices, monkeypatch, caplog, description, chosen, reason, given_as):  # noqa: PLR0917
    caplog.set_level(logging.INFO, logger="absl")
    if given_as == "TF_CONFIG" and description:
        monkeypatch.setenv("TF_CONFIG", json.dumps(description))
        description = None
    assert tfdist.auto_strategy(description) == chosen
    assert [call[0] for call in choices] == [chosen]
    assert "auto_strategy chose" in caplog.text
    assert reason in caplog.text


def test_options_reach_the_chosen_factory(choices):
    tfdist.auto_strategy(cluster(WORKERS), communication="ring")
    assert choices[0][2] == {"communication": "ring"}


def test_auto_strategy_mirrors_several_devices():
    assert type(tfdist.auto_strategy()) is tf.distribute.MirroredStrategy


@pytest.mark.parametrize("description", [cluster(WORKERS), cluster(WORKERS, index=1), cluster(SERVERS, "chief")])
def test_mirrored_strategy_refuses_a_cluster_of_several(monkeypatch, description):
    monkeypatch.setenv("TF_CONFIG", json.dumps(description))
    with pytest.raises(ArgumentError, match=r"(?s)cannot hold a MirroredStrategy.*2 worker.*TF_CONFIG.*auto_strategy"):
        tfdist.mirrored_strategy()


@pytest.mark.parametrize("description", [None, cluster(WORKERS), cluster(ALONE)])
def test_parameter_servers_that_the_cluster_does_not_have(description):
    with pytest.raises(
        ArgumentError,
        match=r"(?s)cannot hold a ParameterServerStrategy.*Fix: Start it with `tfdist run --workers N --ps M",
    ):
        tfdist.parameter_server_strategy(description)


@pytest.mark.parametrize(("task_type", "name"), [("worker", "worker 0"), ("ps", "ps 0")])
@pytest.mark.parametrize("factory", ["parameter_server_strategy", "auto_strategy"])
def test_tasks_that_can_only_serve(task_type, name, factory):
    with pytest.raises(ArgumentError, match=rf"(?s)this process is {name}.*can only serve.*tfdist\.run\(train\)"):
        getattr(tfdist, factory)(cluster(SERVERS, task_type))


@pytest.mark.parametrize("task_type", ["chief", "worker", "ps"])
def test_multi_worker_strategy_refuses_parameter_servers(task_type):
    with pytest.raises(ArgumentError, match=r"(?s)cannot hold a MultiWorkerMirroredStrategy.*1 ps.*auto_strategy"):
        tfdist.multi_worker_mirrored_strategy(cluster(SERVERS, task_type))


def test_multi_worker_strategy_refuses_an_evaluator():
    with pytest.raises(ArgumentError, match="this process is evaluator"):
        tfdist.multi_worker_mirrored_strategy(cluster(WORKERS, "evaluator"))


@pytest.mark.parametrize("value", ["gloo", "", "RING", None])
def test_unknown_communication(value):
    with pytest.raises(ArgumentError, match=r"(?s)communication=.*Expected.*'auto', 'ring', 'nccl'"):
        tfdist.multi_worker_mirrored_strategy(communication=value)


def test_tensorflow_used_before_a_multi_worker_strategy():
    tf.constant(1.0)
    with pytest.raises(ArgumentError, match=r"(?s)used before the strategy was made.*first thing in train\(\)"):
        tfdist.multi_worker_mirrored_strategy(cluster(WORKERS))


@pytest.mark.parametrize("factory", ["mirrored_strategy", "multi_worker_mirrored_strategy", "auto_strategy"])
def test_a_broken_tf_config_is_an_error_everywhere(monkeypatch, factory):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a", "a:0"]}, "task": {"type": "worker", "index": 7}}')
    with pytest.raises(ClusterConfigError):
        getattr(tfdist, factory)()


def test_another_backend_of_keras(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ArgumentError, match=r"(?s)backend='jax'.*KERAS_BACKEND=tensorflow"):
        tfdist.mirrored_strategy()


def test_every_error_is_a_tfdist_error():
    assert issubclass(ArgumentError, TfdistError)
    assert issubclass(ArgumentError, ValueError)
