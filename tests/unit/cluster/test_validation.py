"""Hostile TF_CONFIGs: each problem is named, all of them at once, and nothing is guessed."""

import json
import random

import pytest

from tfdist.cluster import ClusterConfig
from tfdist.errors import ClusterConfigError

OK_TASK = {"type": "worker", "index": 0}


def read(text):
    return ClusterConfig.from_tf_config(text)


def problem_of(text):
    with pytest.raises(ClusterConfigError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "  \n", "{}", '{"cluster": {}}', '{"cluster": {}, "task": {}}', '{"job": 1}'])
def test_nothing_described_means_local(text):
    assert read(text).is_local


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "is not JSON: Expecting property name"),
        ("worker", "is not JSON: Expecting value"),
        ("[" * 100_000, "is not JSON: nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", "is not JSON"),  # Python refuses numbers of that length
        ("[]", "is not an object.\n  Received: description=[] (from TF_CONFIG)"),
        ("null", "is not an object"),
        ("3", "is not an object"),
        ('{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}', "A key occurs more than once in one JSON object"),
    ],
)
def test_text_that_is_no_description(text, expected):
    assert expected in problem_of(text)


def cluster(tasks, task=OK_TASK):
    return json.dumps({"cluster": tasks, "task": task})


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([], "The cluster is not an object"),
        ("worker", "The cluster is not an object"),
        ({"wroker": ["a:1"], "worker": ["b:1"]}, "unknown task type.\n  Received: cluster key='wroker'"),
        ({"Worker": ["a:1"], "worker": ["b:1"]}, "unknown task type"),
        ({"worker": []}, "not a list of addresses"),
        ({"worker": "a:1"}, "not a list of addresses"),
        ({"worker": {"0": "a:1"}}, "not a list of addresses"),
        ({"worker": None}, "not a list of addresses"),
        ({"worker": ["a:1", "a:1"]}, "Two tasks have the same address, cluster.worker[0] and cluster.worker[1]"),
        ({"worker": ["a:1", "A:01"]}, "Two tasks have the same address"),
        ({"worker": ["a:1"], "evaluator": ["a:1"]}, "same address, cluster.worker[0] and cluster.evaluator[0]"),
        ({"chief": ["a:1"], "master": ["b:1"], "worker": ["c:1"]}, "both a chief and a master"),
        ({"chief": ["a:1", "b:1"], "worker": ["c:1"]}, "more than one chief"),
        ({"worker": ["c:1"], "evaluator": ["a:1", "b:1"]}, "more than one evaluator"),
        ({"worker": ["a:1"], "ps": ["b:1"]}, "parameter servers (ps) but no chief"),
        ({"chief": ["a:1"], "ps": ["b:1"]}, "parameter servers (ps) but no worker"),
        ({"ps": ["b:1"]}, "parameter servers (ps) but no chief and worker"),
        ({"evaluator": ["b:1"]}, "No task of the cluster trains"),
    ],
)
def test_clusters(tasks, expected):
    assert expected in problem_of(cluster(tasks))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (2222, "not a string.\n  Received: cluster.worker[0]=2222 (from TF_CONFIG)"),
        (None, "not a string"),
        (["a:1"], "not a string"),
        ("", "no usable host"),
        (":2222", "no usable host"),
        ("[]:2222", "no usable host"),
        ("a", "has no port"),
        ("a:", "has no port"),
        ("[::1]", "has no port"),
        ("a:b", "a port that is not a number from 1 to 65535"),
        ("a:0", "a port that is not a number from 1 to 65535"),
        ("a:65536", "a port that is not a number from 1 to 65535"),
        ("a:-1", "a port that is not a number from 1 to 65535"),
        ("a:+1", "a port that is not a number from 1 to 65535"),
        ("a:1.0", "a port that is not a number from 1 to 65535"),
        ("a:" + "9" * 5000, "a port that is not a number from 1 to 65535"),
        ("a:\u0661", "characters that no address can have"),  # a digit, but not to a resolver
        (" a:1", "characters that no address can have"),
        ("a:1\n", "characters that no address can have"),
        ("a :1", "characters that no address can have"),
        ("grpc://a:1", "looks like a URL"),
        ("a:1/x", "looks like a URL"),
        ("a:1,b:1", "no brackets"),
        ("::1:2222", 'Fix: put the host in brackets: "[::1]:2222"'),
        ("fe80::1", 'Fix: put the host in brackets and add a port: "[fe80::1]:2222"'),
    ],
)
def test_addresses(address, expected):
    assert expected in problem_of(cluster({"worker": [address]}))


@pytest.mark.parametrize("address", ["a:1", "10.0.0.1:65535", "[::1]:2222", "[fe80::1%eth0]:1", "x-1.svc.local:8"])
def test_good_addresses(address):
    assert read(cluster({"worker": [address]})).worker_addresses == (address,)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (None, "There is a cluster but no task"),
        ({}, "There is a cluster but no task"),
        ([], "The task is not an object"),
        ("worker", "The task is not an object"),
        ({"index": 0}, "The task has no type"),
        ({"type": "worker"}, "The task has no index"),  # never taken for 0
        ({"type": "worker", "index": None}, "The task has no index"),
        ({"type": "wroker", "index": 0}, "unknown type"),
        ({"type": ["worker"], "index": 0}, "unknown type"),
        ({"type": 1, "index": 0}, "unknown type"),
        ({"type": "worker", "index": "1"}, "Fix: write 1 without quotes"),
        ({"type": "worker", "index": True}, "not a whole number from 0"),
        ({"type": "worker", "index": 1.0}, "not a whole number from 0"),
        ({"type": "worker", "index": -1}, "not a whole number from 0"),
        ({"type": "worker", "index": 2}, "out of range: the cluster has 2 of type worker"),
        ({"type": "chief", "index": 0}, "This process is a chief, but the cluster lists none"),
        ({"type": "master", "index": 0}, "This process is a master, but the cluster lists none"),
        ({"type": "ps", "index": 0}, "This process is a ps, but the cluster lists none"),
    ],
)
def test_tasks(task, expected):
    assert expected in problem_of(cluster({"worker": ["a:1", "b:1"]}, task))


def test_a_task_without_a_cluster():
    assert "There is a task but no cluster" in problem_of('{"task": {"type": "worker", "index": 0}}')
    assert "There is a task but no cluster" in problem_of('{"cluster": {}, "task": {"type": "worker", "index": 0}}')


def test_all_problems_at_once_each_in_the_one_shape():
    message = problem_of(cluster({"worker": ["a", "b:0", "c:1", "c:1"], "x": []}, {"type": "ps", "index": "0"}))
    assert message.startswith("The cluster description from TF_CONFIG has 6 problems.\n1. ")
    for part in ("no port", "not a number from 1", "same address", "unknown task type", "is a ps", "without quotes"):
        assert part in message
    for label in ("Received: ", "Expected: ", "Fix: "):
        assert message.count(f"\n  {label}") == 6


def test_a_huge_value_does_not_bury_the_message():
    assert len(problem_of(cluster({"worker": "x" * 10**6}))) < 2000


def random_value(rng, depth=0):
    words = [
        "cluster",
        "task",
        "type",
        "index",
        "worker",
        "chief",
        "ps",
        "master",
        "evaluator",
        "a:1",
        "b:2",
        "[::1]:3",
        "",
    ]
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind < 3:
        return rng.choice(words)
    if kind == 3:
        return rng.choice([0, 1, -1, 2.5, True, None, 10**30])
    if kind == 4:
        return rng.choice([[], {}, ["a:1"], {"type": "worker", "index": 0}, {"worker": ["a:1", "b:2"]}])
    if kind == 5:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(words): random_value(rng, depth + 1) for _ in range(rng.randrange(5))}


def test_random_descriptions_give_a_config_or_the_error():
    rng, outcomes = random.Random(0), {"local": 0, "cluster": 0, "error": 0}
    for _ in range(5000):
        description = random_value(rng)
        if rng.random() < 0.7:
            description = {"cluster": random_value(rng), "task": random_value(rng)}
        text = json.dumps(description)
        if rng.random() < 0.1:
            text = text[: rng.randrange(len(text) + 1)]
        try:
            config = read(text)
        except ClusterConfigError:
            outcomes["error"] += 1
        else:
            outcomes["local" if config.is_local else "cluster"] += 1
            assert read(config.to_tf_config()) == config
    assert all(outcomes.values()), outcomes  # the fuzz reaches all three
