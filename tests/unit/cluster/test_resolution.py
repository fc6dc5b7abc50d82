"""Which description counts."""

import json

import pytest

from tfdist.cluster import ClusterConfig, resolve_cluster
from tfdist.errors import ClusterConfigError

ONE = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
OTHER = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize("env", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_local_when_nothing_is_said(env):
    assert resolve_cluster(None, env) == ClusterConfig.local()


def test_tf_config():
    config = resolve_cluster(None, {"TF_CONFIG": json.dumps(OTHER)})
    assert (config.task_name, config.source) == ("worker 1", "TF_CONFIG")


@pytest.mark.parametrize("explicit", [ONE, json.dumps(ONE), ClusterConfig.from_mapping(ONE)])
@pytest.mark.parametrize("env", [{}, {"TF_CONFIG": "{}"}, {"TF_CONFIG": json.dumps(ONE)}])
def test_an_argument_in_every_form(explicit, env):
    config = resolve_cluster(explicit, env)
    assert (config.task_name, config.source) == ("worker 0", "argument")


def test_disagreement_names_both():
    with pytest.raises(ClusterConfigError) as caught:
        resolve_cluster(ONE, {"TF_CONFIG": json.dumps(OTHER)})
    message = str(caught.value)
    assert "argument={" in message
    assert "TF_CONFIG={" in message
    assert '"index": 0' in message
    assert '"index": 1' in message


def test_a_broken_tf_config_is_an_error_even_beside_an_argument():
    with pytest.raises(ClusterConfigError, match="not JSON"):
        resolve_cluster(ONE, {"TF_CONFIG": "{"})


def test_an_argument_of_another_type():
    with pytest.raises(ClusterConfigError, match=r"not an object.\n  Received: description=3 \(from argument\)"):
        resolve_cluster(3, {})
