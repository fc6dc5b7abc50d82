"""A job whose tasks have failed is started again, as often as it may be."""

import signal
import time

from launcher_process import LIMIT_S

ATTEMPT = """
    import os, signal, sys, time
    attempt, task = int(os.environ["TFDIST_ATTEMPT"]), os.environ["TFDIST_TASK"]
    print("attempt", attempt, os.environ["TFDIST_JOB_ID"], flush=True)
"""


def test_a_killed_worker(launch, tmp_path):
    script = f"""{ATTEMPT}
    if attempt < 2 and task == "worker 1":
        os.kill(os.getpid(), signal.SIGKILL)
    if attempt < 2:
        time.sleep(60)
    """
    logs = tmp_path / "logs"
    status, stdout, stderr = launch(script, "--workers", "2", "--max-restarts", "2", "--log-dir", str(logs)).finish()
    assert status == 0
    assert stderr.count("[tfdist] worker 1 was killed by SIGKILL (signal 9)\n") == 2  # the fault has fired
    assert "attempt 2 follows in 2 s: attempt 1 failed 2 of at most 2 times (--max-restarts)" in stderr
    ids = {line.split()[-1] for line in stdout.splitlines() if " attempt " in line}
    assert len(ids) == 3  # each attempt is a job of its own for the watchdog
    assert [line.split()[1] for line in (logs / "worker-0.log").read_text().splitlines()] == ["0", "1", "2"]


def test_the_budget_of_failures(launch):
    script = f"""{ATTEMPT}
    raise RuntimeError(f"bad luck {{attempt}}")
    """
    status, stdout, stderr = launch(script, "--max-restarts", "1").finish()
    assert status == 1
    assert "the job is not started again: failed 2 times, and --max-restarts=1" in stderr
    assert stdout.count("attempt") == 2


def test_the_same_failure_three_times(launch):
    script = f"""{ATTEMPT}
    raise RuntimeError("a bug")
    """
    status, stdout, stderr = launch(script, "--max-restarts", "9").finish()
    assert status == 1
    assert "not started again: the same failure came 3 times in a row" in stderr
    assert stdout.count("attempt") == 3


def test_a_preempted_job_has_a_budget_of_its_own(launch):
    script = f"""{ATTEMPT}
    if attempt < 2:
        sys.exit(75)
    """
    status, stdout, stderr = launch(script, "--max-restarts", "0", "--max-preemptions", "2").finish()
    assert status == 0
    assert "attempt 1 follows in 0 s: attempt 0 preempted 1 of at most 2 times (--max-preemptions)" in stderr
    assert stdout.count("attempt") == 3


def test_the_launcher_is_ended_while_it_waits_for_the_next_attempt(launch):
    script = f"""{ATTEMPT}
    open(f"begun-{{attempt}}", "w").close()
    raise RuntimeError(f"{{attempt}}")
    """
    launcher = launch(script, "--max-restarts", "9")
    deadline = time.monotonic() + LIMIT_S
    begun = launcher.script.parent / "begun-2"
    while not (begun.exists() and not any(launcher.temporary.iterdir())):  # the third attempt has been and gone
        assert time.monotonic() < deadline
        time.sleep(0.01)
    launcher.process.send_signal(signal.SIGTERM)  # within the 4 seconds before the fourth
    status, stdout, stderr = launcher.finish()
    assert status == 143
    assert stdout.count("attempt") == 3
    assert "attempt 3 follows in 4 s" in stderr
