"""Signals to the launcher, and its death: no process and no temporary file is left."""

import os
import signal
from pathlib import Path

import pytest
from launcher_process import wait_for

# Each task starts a child in its own process group, and one that leaves it for a session of its own.
FAMILY = """
    import os, signal, subprocess, sys, threading
    if {ignore}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep = [sys.executable, "-c", "import threading; threading.Event().wait(120)"]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True)
    open(os.environ["TFDIST_TASK"], "w").close()
    threading.Event().wait(120)
"""


def family(*, ignore=False):
    return FAMILY.format(ignore=ignore)


def wait_for_tasks(directory: Path, *names):
    wait_for(lambda: all((directory / name).exists() for name in names), lambda: f"not started: {names}")


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)],
)
def test_a_signal_ends_the_job(launch, tmp_path, number, status):
    launcher = launch(family(), "--workers", "2")
    wait_for_tasks(tmp_path, "worker 0", "worker 1")
    assert len(launcher.find_processes()) >= 7  # the launcher, its watchdog, two tasks, four children
    launcher.process.send_signal(number)
    returncode, _, stderr = launcher.finish()
    assert returncode == status
    assert stderr.endswith(f"[tfdist] the job ended: the launcher received {signal.Signals(number).name}\n")
    assert "Traceback" not in stderr


def test_a_second_ctrl_c_kills_tasks_that_do_not_listen(launch, tmp_path):
    launcher = launch(family(ignore=True), "--workers", "2")
    wait_for_tasks(tmp_path, "worker 0", "worker 1")
    launcher.process.send_signal(signal.SIGINT)
    assert b"asking worker 0, worker 1 to end" in launcher.process.stderr.readline()
    launcher.process.send_signal(signal.SIGINT)
    status, _, stderr = launcher.finish()
    assert status == 130
    assert "killing worker 0, worker 1" in stderr


@pytest.mark.parametrize("ignore", [False, True])
def test_nothing_survives_the_sudden_death_of_the_launcher(launch, tmp_path, ignore):
    launcher = launch(family(ignore=ignore), "--workers", "2")
    wait_for_tasks(tmp_path, "worker 0", "worker 1")
    assert any(launcher.temporary.iterdir())
    launcher.process.kill()
    launcher.process.communicate(timeout=60)
    launcher.check_nothing_left()


def test_nothing_survives_if_the_whole_process_group_of_the_launcher_is_killed(launch, tmp_path):
    launcher = launch(family(), "--workers", "2")
    wait_for_tasks(tmp_path, "worker 0", "worker 1")
    os.killpg(launcher.process.pid, signal.SIGKILL)
    launcher.process.communicate(timeout=60)
    launcher.check_nothing_left()


def test_children_that_a_task_leaves_behind_end_with_the_job(launch):
    script = """
        import subprocess, sys
        sleep = [sys.executable, "-c", "import threading; threading.Event().wait(120)"]
        subprocess.Popen(sleep)
        subprocess.Popen(sleep, start_new_session=True)
    """
    status, _, stderr = launch(script, "--workers", "2").finish()
    assert (status, stderr) == (0, "")


def test_a_launcher_inside_a_task_ends_with_it(launch, tmp_path):
    (tmp_path / "inner.py").write_text("import threading; open('inner', 'w').close(); threading.Event().wait(120)")
    script = """
        import subprocess, sys
        subprocess.run([sys.executable, "-m", "tfdist", "run", "--workers", "1", "inner.py"])
    """
    launcher = launch(script)
    wait_for_tasks(tmp_path, "inner")
    launcher.process.kill()
    launcher.process.communicate(timeout=60)
    launcher.check_nothing_left()


def test_a_system_that_refuses_more_files_is_named_and_what_had_started_is_ended(launch):
    limited = ("sh", "-c", 'ulimit -n 40; exec "$@"', "sh")
    status, _, stderr = launch(family(), "--workers", "25", prefix=limited).finish()
    assert status == 2
    assert stderr.startswith("tfdist: The system refuses what the job needs: [Errno 24] Too many open files.\n")
