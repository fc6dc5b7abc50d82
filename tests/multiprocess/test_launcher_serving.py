"""`tfdist.run` on the tasks that serve: real TensorFlow servers."""

import signal
import socket

import pytest

from tfdist.testing import LocalCluster

pytest.importorskip("tensorflow")

SCRIPT = """
    import sys, threading
    import tfdist

    def train():
        import tensorflow as tf
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        result = coordinator.schedule(tf.function(lambda: tf.constant(2.0) * 3.0)).fetch()
        print("result", result, flush=True)
        if "stay" in sys.argv:
            threading.Event().wait(120)
        return "trained"

    print("returned", tfdist.run(train, coordinator_grace_s=2.0), flush=True)
"""


def test_serving_tasks_end_on_request_and_when_the_coordinator_is_gone():
    with LocalCluster(workers=1, ps=1, script=SCRIPT, args=["stay"], time_limit_s=120) as cluster:
        cluster.wait_for_output("chief", "result 6.0")
        cluster.wait_for(lambda: '"connected"' in progress_of(cluster, "worker-0"), "the worker's report")
        cluster.kill("ps 0", signal.SIGTERM)
        assert cluster.join("ps 0")["ps 0"].stdout == ""  # code after tfdist.run does not run there
        cluster.kill("chief")
        worker = cluster.join("worker 0")["worker 0"]
    assert worker.stdout == ""
    assert "worker 0 ends: the coordinator at 127.0.0.1:" in worker.stderr
    assert "for 2 s (coordinator_grace_s)" in worker.stderr


def progress_of(cluster, stem):
    path = cluster.directory / f"progress-{stem}.json"
    return path.read_text() if path.exists() else ""


def test_the_launcher_ends_serving_tasks_after_training(launch):
    # TensorFlow's AutoGraph leaves compiled files of the script's tf.function in TMPDIR; they are not the launcher's.
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    status, stdout, stderr = launch(SCRIPT, "--workers", "1", "--ps", "1", env=env).finish()
    assert status == 0, stderr
    assert stdout.splitlines() == ["[chief] result 6.0", "[chief] returned trained"]


def test_a_coordinator_that_never_comes_and_a_port_that_is_taken():
    script = """
        import os, threading
        import tfdist
        if os.environ["TFDIST_TASK"] == "chief":
            threading.Event().wait(120)
        if os.environ["TFDIST_TASK"] == "ps 0":
            while not os.path.exists(os.environ["TFDIST_REPORT_DIR"] + "/taken"):
                threading.Event().wait(0.01)
        tfdist.run(lambda: None)
    """
    env = {"TFDIST_START_TIMEOUT_S": "1"}
    with (
        LocalCluster(workers=1, ps=1, script=script, env=env, time_limit_s=120) as cluster,
        socket.socket() as other,
    ):
        port = int(cluster.tf_config("ps 0").rpartition('"ps": ["127.0.0.1:')[2].partition('"')[0])
        other.bind(("", port))
        other.listen()
        (cluster.directory / "taken").touch()
        results = cluster.join("worker 0", "ps 0", check=False)
    assert {result.returncode for result in results.values()} == {1}
    assert f"ServerStartError: The port {port} of ps 0 is taken by another program." in results["ps 0"].stderr
    assert (
        "TimeLimitError: worker 0 waited for the coordinator (chief), which did not appear"
        in results["worker 0"].stderr
    )
    assert "the limit TFDIST_START_TIMEOUT_S" in results["worker 0"].stderr
