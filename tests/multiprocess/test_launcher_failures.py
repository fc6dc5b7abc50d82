"""What the launcher makes of tasks that fail, hang or are killed: it names the task and the cause, and ends."""

import pytest

WAIT = """
    import os, signal, sys, threading, time
    import tfdist
    from tfdist.reporting import report_progress
    task = os.environ["TFDIST_TASK"]
    def wait():
        threading.Event().wait(120)
"""


def last_words(stderr):
    """What the launcher says after everything else, from its last headline."""
    return stderr[stderr.rindex("\n[tfdist] ") + 1 :] if "\n[tfdist] " in stderr else stderr


def test_a_task_that_raises(launch):
    script = f"""{WAIT}
    if task == "worker 1":
        raise ValueError("bad batch")
    wait()
    """
    status, _, stderr = launch(script, "--workers", "2").finish()
    assert status == 1
    words = last_words(stderr).splitlines()
    assert words[0] == "[tfdist] worker 1 ended with status 1: ValueError: bad batch"
    assert "  | Traceback (most recent call last):" in words
    assert words[-1] == "  worker 0 was asked to end, and did"
    assert "[worker 1] ValueError: bad batch" in stderr


def test_the_earliest_report_is_the_cause_although_another_ends_first(launch):
    script = f"""{WAIT}
    def train():
        if task == "worker 1":
            raise ValueError("the cause")
        deadline = time.monotonic() + 60
        while not os.path.exists(os.environ["TFDIST_REPORT_DIR"] + "/failure-worker-1.json"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        raise ConnectionError("the consequence")
    def slow_end():
        import atexit
        deadline = time.monotonic() + 60
        path = os.environ["TFDIST_REPORT_DIR"] + "/failure-worker-0.json"
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
    if task == "worker 1":
        import atexit
        atexit.register(slow_end)
    tfdist.run(train)
    """
    status, _, stderr = launch(script, "--workers", "2").finish()
    assert status == 1
    words = last_words(stderr).splitlines()
    assert words[0] == "[tfdist] worker 1 ended with status 1: ValueError: the cause"
    assert words[-1] == "  worker 0 ended afterwards: ConnectionError"


def test_a_task_that_exits_with_a_status(launch):
    script = f"""{WAIT}
    if task == "worker 1":
        sys.exit(3)
    wait()
    """
    status, _, stderr = launch(script, "--workers", "3").finish()
    assert status == 3
    assert last_words(stderr).startswith("[tfdist] worker 1 ended with status 3\n")


def test_a_task_that_is_killed(launch):
    script = f"""{WAIT}
    if task == "worker 1":
        print("last words", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)
    wait()
    """
    status, _, stderr = launch(script, "--workers", "2").finish()
    assert status == 137
    words = last_words(stderr)
    assert words.startswith("[tfdist] worker 1 was killed by SIGKILL (signal 9)\n")
    assert "  | last words" in words


def test_a_task_that_hangs_at_its_start_while_another_waits(launch):
    script = f"""{WAIT}
    report_progress("started")
    if task == "worker 0":
        report_progress("connecting")
    wait()
    """
    status, _, stderr = launch(script, "--workers", "2", "--start-timeout-s", "0.5").finish()
    assert status == 1
    assert last_words(stderr) == (
        "[tfdist] the job ended: not connected within 0.5 s (--start-timeout-s) after the first task was ready: "
        "worker 1 (last report: started); worker 0 waits for it\n"
    )


def test_a_task_that_ends_before_it_connects_while_another_waits(launch):
    script = f"""{WAIT}
    if task == "worker 0":
        report_progress("connecting")
        wait()
    """
    status, _, stderr = launch(script, "--workers", "2").finish()
    assert status == 1
    assert "worker 1 ended with status 0 before it connected to the cluster, and worker 0 waits for it" in stderr


def test_a_broken_tf_config(launch):
    script = f"""{WAIT}
    if task == "worker 1":
        import json
        task = {{"type": "worker", "index": "0"}}
        os.environ["TF_CONFIG"] = json.dumps({{"cluster": {{"worker": ["a:1", "a:1"]}}, "task": task}})
    tfdist.run(wait)
    """
    status, _, stderr = launch(script, "--workers", "2").finish()
    assert status == 1
    words = last_words(stderr)
    headline = (
        "worker 1 ended with status 1: ClusterConfigError: The cluster description from TF_CONFIG has 2 problems."
    )
    assert words.splitlines()[0] == f"[tfdist] {headline}"
    assert "Two tasks have the same address" in words
    assert "write 0 without quotes" in words


def test_helpers_are_ended_when_the_coordinator_is_done(launch):
    script = f"""{WAIT}
    if task != "chief":
        print("serving")
        wait()
    """
    status, _, stderr = launch(script, "--workers", "1", "--ps", "2").finish()
    assert (status, stderr) == (0, "")


def test_a_helper_that_ignores_the_request_is_killed_and_does_not_count(launch):
    script = f"""{WAIT}
    if task != "chief":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(task, "w").close()
        wait()
    deadline = time.monotonic() + 60
    while not (os.path.exists("ps 0") and os.path.exists("worker 0")) and time.monotonic() < deadline:
        time.sleep(0.01)
    """
    assert launch(script, "--workers", "1", "--ps", "1").finish()[0] == 0


@pytest.mark.parametrize(("ending", "status"), [("sys.exit(4)", 4), ("wait()", 0)])
def test_the_evaluator_after_training(launch, ending, status):
    script = f"""{WAIT}
    if task == "evaluator":
        {ending}
    """
    assert launch(script, "--evaluator", "--evaluator-grace-s", "0.5").finish()[0] == status
