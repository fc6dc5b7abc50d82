"""What is found in the environments of the platforms."""

import json

import pytest
from recorded_environments import ALONE, HOSTILE, RECORDED, SLURM

from tfdist.cluster.platforms import detect_platform
from tfdist.cluster.platforms.node_list import parse_node_list, parse_tasks_per_node
from tfdist.cluster.resolution import resolve_cluster
from tfdist.errors import ClusterConfigError


@pytest.mark.parametrize("name", RECORDED)
def test_a_platform(name):
    env, addresses, task = RECORDED[name]
    config = resolve_cluster(None, env)
    assert list(config.worker_addresses) == addresses
    assert config.task_name == task
    detected = detect_platform(env)
    assert detected.platform in config.source
    assert detected.evidence in config.source


@pytest.mark.parametrize("name", ALONE)
def test_training_alone(name):
    assert resolve_cluster(None, ALONE[name]).is_local


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_used_says_why(name):
    env, said = HOSTILE[name]
    with pytest.raises(ClusterConfigError, match=said) as caught:
        resolve_cluster(None, env)
    text = str(caught.value)
    assert "Received: " in text
    assert "Fix: " in text


def test_every_task_of_a_step_finds_the_same_cluster():
    env, addresses, _ = RECORDED["Slurm, several a node"]
    place = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    for rank, (node, local) in enumerate(place):
        own = {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
        config = resolve_cluster(None, env | own)
        assert list(config.worker_addresses) == addresses
        assert config.worker_index == rank


def test_ports_follow_from_the_job():
    env = {name: value for name, value in SLURM.items() if name != "TFDIST_BASE_PORT"}
    ports = {
        job: {
            address.rpartition(":")[2]
            for address in resolve_cluster(None, env | {"SLURM_JOB_ID": job}).worker_addresses
        }
        for job in ("7", "8")
    }
    assert len(ports["7"]) == len(ports["8"]) == 2
    assert not ports["7"] & ports["8"]


def test_tf_config_goes_first_and_the_source_says_so():
    described = {"cluster": {"worker": ["x:1", "y:1"]}, "task": {"type": "worker", "index": 0}}
    config = resolve_cluster(None, SLURM | {"TF_CONFIG": json.dumps(described)})
    assert config.worker_addresses == ("x:1", "y:1")
    assert config.source.startswith("TF_CONFIG, which goes before Slurm (SLURM_STEP_ID")
    half = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "TF_CONFIG": json.dumps(described)}
    assert resolve_cluster(None, half).source == "TF_CONFIG"
    assert resolve_cluster(described, SLURM).source.startswith("argument, which goes before Slurm")


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ["n1"]),
        ("n1,n2", ["n1", "n2"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,3],x", ["n08", "n09", "n10", "n3", "x"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("r[1-2]-a,b.c.d", ["r1-a", "r2-a", "b.c.d"]),
        ("n[001]", ["n001"]),
    ],
)
def test_lists_of_nodes(text, nodes):
    assert parse_node_list(text, "LIST") == nodes


@pytest.mark.parametrize("text", ["", ",", "n[", "n]", "n[]", "n[a-b]", "n[1-]", "n[3-1]", "a,,b", "n[1][", "n [1]"])
def test_what_is_no_list_of_nodes(text):
    with pytest.raises(ClusterConfigError, match="LIST="):
        parse_node_list(text, "LIST")


def test_ten_thousand_nodes():
    """About 5 ms; no time is asserted."""
    assert parse_node_list("rack[001-100]n[001-100]", "LIST")[-1] == "rack100n100"
    assert len(parse_node_list(",".join(f"n{number}" for number in range(10_000)), "LIST")) == 10_000
    assert parse_tasks_per_node("4(x10000)", "COUNTS") == [4] * 10_000
    several = {
        "SLURM_STEP_NODELIST": "n[1-10000]",
        "SLURM_STEP_TASKS_PER_NODE": "4(x10000)",
        "SLURM_STEP_NUM_TASKS": "40000",
        "SLURM_PROCID": "39999",
        "SLURM_NODEID": "9999",
        "SLURM_LOCALID": "3",
    }
    assert resolve_cluster(None, SLURM | several).worker_index == 39_999


@pytest.mark.parametrize(("text", "counts"), [("2", [2]), ("2(x3),1", [2, 2, 2, 1]), ("1, 4(x2)", [1, 4, 4])])
def test_tasks_per_node(text, counts):
    assert parse_tasks_per_node(text, "COUNTS") == counts
