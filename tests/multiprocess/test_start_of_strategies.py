"""Making a strategy in a real job: who is missing, who can only serve, what was done too early."""

import json
import os
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(180)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run_alone(script, addresses, task_type, index=0, limit_s="4"):
    """Starts one task of a cluster whose other tasks never come."""
    tf_config = {"cluster": addresses, "task": {"type": task_type, "index": index}}
    env = {
        **os.environ,
        "TF_CONFIG": json.dumps(tf_config),
        "TFDIST_START_TIMEOUT_S": limit_s,
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=env, capture_output=True, text=True, timeout=90
    )


MULTI = "import tfdist; tfdist.multi_worker_mirrored_strategy()"
SERVERS = "import tfdist; tfdist.parameter_server_strategy()"


@pytest.mark.parametrize("index", [0, 1])
def test_a_worker_that_never_comes_is_named(index):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    began = time.monotonic()
    done = run_alone(MULTI, {"worker": addresses}, "worker", index)
    assert time.monotonic() - began < 60
    assert done.returncode == 1
    error = done.stderr[done.stderr.index("tfdist.errors.TimeLimitError") :]
    assert f"worker {1 - index} at {addresses[1 - index]}" in error
    assert "TFDIST_START_TIMEOUT_S=4" in error
    assert f"worker {index} at" not in error


def test_servers_that_never_come_are_named():
    ports = free_ports(4)
    addresses = {
        "chief": [f"127.0.0.1:{ports[0]}"],
        "worker": [f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[2]}"],
        "ps": [f"127.0.0.1:{ports[3]}"],
    }
    with socket.create_server(("127.0.0.1", ports[1])):  # worker 0 is there
        done = run_alone(SERVERS, addresses, "chief", limit_s="2")
    assert done.returncode == 1
    error = done.stderr[done.stderr.index("tfdist.errors.TimeLimitError") :]
    assert f"worker 1 at 127.0.0.1:{ports[2]}" in error
    assert f"ps 0 at 127.0.0.1:{ports[3]}" in error
    assert "worker 0 at" not in error


@pytest.mark.parametrize("early", ["tf.constant(1)", "tf.Variable(1)", "tf.config.list_logical_devices()"])
def test_tensorflow_used_too_early(early):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    done = run_alone(f"import tensorflow as tf, tfdist; {early}; {MULTI}", {"worker": addresses}, "worker")
    assert done.returncode == 1
    assert "tfdist.errors.ArgumentError: TensorFlow was used before the strategy was made" in done.stderr


JOB = """
    import keras, tensorflow as tf, tfdist

    def train():
        strategy = tfdist.auto_strategy()
        print(type(strategy).__name__, strategy.num_replicas_in_sync, flush=True)
        base = {classes}
        assert isinstance(strategy, base)
        with strategy.scope():
            keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        if strategy.cluster_resolver:
            print("resolver", strategy.cluster_resolver.task_type, strategy.cluster_resolver.task_id, flush=True)

    if __name__ == "__main__":
        tfdist.run(train)
"""


def test_genuine_multi_worker_strategy():
    script = JOB.replace("{classes}", "tf.distribute.MultiWorkerMirroredStrategy")
    with LocalCluster(workers=2, script=script) as cluster:
        results = cluster.join()
    for index in (0, 1):
        assert "CollectiveAllReduceStrategy 2" in results[f"worker {index}"].stdout.replace(
            "MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"
        )
        assert f"resolver worker {index}" in results[f"worker {index}"].stdout


def test_genuine_parameter_server_strategy():
    script = JOB.replace("{classes}", "tf.distribute.ParameterServerStrategy")
    with LocalCluster(workers=1, ps=1, script=script) as cluster:
        results = cluster.join("chief")
    assert "ParameterServerStrategy" in results["chief"].stdout


def test_a_task_that_can_only_serve_names_the_remedy():
    ports = [f"127.0.0.1:{port}" for port in free_ports(3)]
    addresses = {"chief": ports[:1], "worker": ports[1:2], "ps": ports[2:]}
    for task_type in ("worker", "ps"):
        done = run_alone("import tfdist; tfdist.auto_strategy()", addresses, task_type)
        assert done.returncode == 1
        assert "call `tfdist.run(train)`" in done.stderr
