"""`LocalCluster`, on which the tests of training stand."""

import os

import pytest

from tfdist.testing import LocalCluster

SERVE = """
    import os, threading
    print(os.environ["TFDIST_TASK"], os.getpid(), flush=True)
    if os.environ["TFDIST_TASK"] != "chief":
        threading.Event().wait(120)
"""


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_runs_kills_restarts_and_reaps():
    with LocalCluster(workers=2, ps=1, script=SERVE, time_limit_s=60) as cluster:
        assert cluster.task_names == ("chief", "worker 0", "worker 1", "ps 0")
        assert cluster.join("chief")["chief"].stdout.startswith("chief ")
        for name in cluster.task_names[1:]:
            cluster.wait_for_output(name, name)
        config, first = cluster.tf_config("worker 1"), cluster.pid("worker 1")
        cluster.kill("worker 0")
        assert cluster.returncode("worker 0") == -9
        cluster.restart("worker 1")
        cluster.wait_for_output("worker 1", f"worker 1 {cluster.pid('worker 1')}\n")
        assert first != cluster.pid("worker 1")
        assert config == cluster.tf_config("worker 1")
        assert not is_alive(first)
        pids, directory = [cluster.pid(name) for name in cluster.task_names], cluster.directory
    assert not any(map(is_alive, pids))
    assert not directory.exists()


def test_a_failure_comes_with_all_logs():
    script = """
        import os, sys
        print("output of", os.environ["TFDIST_TASK"])
        sys.exit("bad" if os.environ["TFDIST_TASK"] == "worker 1" else 0)
    """
    with LocalCluster(workers=2, script=script, time_limit_s=60) as cluster:
        with pytest.raises(AssertionError) as caught:
            cluster.join()
        assert {name: result.returncode for name, result in cluster.join(check=False).items()} == {
            "worker 0": 0,
            "worker 1": 1,
        }
    message = str(caught.value)
    assert message.startswith("worker 1 failed.")
    for part in ("output of worker 0", "output of worker 1", "bad", "ended with status 1"):
        assert part in message


def test_the_time_limit_ends_what_hangs():
    with LocalCluster(workers=2, script=SERVE, time_limit_s=0.5) as cluster:
        pid = cluster.pid("worker 0")
        with pytest.raises(AssertionError, match=r"No sign of the end of worker 0, worker 1 within 0.5 s"):
            cluster.join()
    assert not is_alive(pid)
