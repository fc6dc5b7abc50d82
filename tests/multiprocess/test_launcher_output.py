"""What the launcher passes on: output, arguments, environment."""

import json

SHOW = """
    import json, os, sys
    keys = ("TF_CONFIG", "TFDIST_TASK", "PYTHONUNBUFFERED", "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")
    print(json.dumps([sys.argv[1:], __name__, {key: os.environ.get(key) for key in keys}]))
"""


def read_shown(stdout):
    lines = [line.split("] ", 1) for line in stdout.splitlines()]
    return {prefix.removeprefix("["): json.loads(text) for prefix, text in lines}


def test_a_script_gets_its_own_arguments_and_each_task_its_place(launch):
    status, stdout, stderr = launch(SHOW, "--workers", "2", args=["--workers", "9", "-m", "x y"]).finish()
    assert (status, stderr) == (0, "")
    shown = read_shown(stdout)
    assert set(shown) == {"worker 0", "worker 1"}
    for index in (0, 1):
        argv, name, env = shown[f"worker {index}"]
        assert (argv, name) == (["--workers", "9", "-m", "x y"], "__main__")
        assert json.loads(env["TF_CONFIG"])["task"] == {"type": "worker", "index": index}
        assert env["TFDIST_TASK"] == f"worker {index}"
        assert int(env["TF_NUM_INTRAOP_THREADS"]) >= 1
        assert env["PYTHONUNBUFFERED"] == "1"


def test_one_worker_trains_locally(launch):
    status, stdout, _ = launch(SHOW).finish()
    env = read_shown(stdout)["worker 0"][2]
    assert (status, env["TF_CONFIG"], env["OMP_NUM_THREADS"]) == (0, None, None)


def test_threads_that_the_user_sets(launch):
    _, stdout, _ = launch(SHOW, "--workers", "2", "--threads-per-task", "3", env={"OMP_NUM_THREADS": "7"}).finish()
    env = read_shown(stdout)["worker 1"][2]
    assert (env["TF_NUM_INTRAOP_THREADS"], env["OMP_NUM_THREADS"]) == ("3", "7")


def test_a_module(launch):
    status, stdout, _ = launch(SHOW, "--workers", "2", "-m", "script", args=["--a"]).finish()
    assert status == 0
    assert read_shown(stdout)["worker 1"][:2] == [["--a"], "__main__"]


def test_lines_never_mix_and_any_bytes_survive(launch, tmp_path):
    script = r"""
        import os
        name = os.environ["TFDIST_TASK"].encode()
        for number in range(300):
            line = name + b" %d " % number + b"\xff" * (5000 if number % 50 else 300_000) + b"\n"
            while line:  # in pieces, so that other tasks' output comes in between
                line = line[os.write(1, line[:4096]):]
        os.write(1, b"1/2\r2/2\r\n")
        os.write(2, b"no end of line")
    """
    launcher = launch(script, "--workers", "2", "--log-dir", "logs")
    stdout, stderr = launcher.process.communicate(timeout=60)
    for task in (b"worker 0", b"worker 1"):
        prefix = b"[" + task + b"] "
        lines = [line.removeprefix(prefix) for line in stdout.splitlines() if line.startswith(prefix)]
        expected = [task + b" %d " % number + b"\xff" * (5000 if number % 50 else 300_000) for number in range(300)] + [
            b"2/2"
        ]
        assert lines == expected
        log = (tmp_path / "logs" / (task.replace(b" ", b"-").decode() + ".log")).read_bytes()
        assert b"no end of line" in log
        assert log.replace(b"no end of line", b"") == b"".join(line + b"\n" for line in expected[:-1]) + b"1/2\r2/2\r\n"
    assert len(stdout.splitlines()) == 602
    assert sorted(stderr.splitlines()) == [b"[worker 0] no end of line", b"[worker 1] no end of line"]
    launcher.check_nothing_left()


def test_a_reader_that_goes_away_does_not_end_the_job(launch, tmp_path):
    script = """
        import pathlib, time
        for number in range(2000):
            print(number, "x" * 100)
        pathlib.Path("finished").touch()
    """
    launcher = launch(script)
    launcher.process.stdout.readline()
    launcher.process.stdout.close()
    launcher.process.stdout = None
    assert launcher.process.wait(timeout=60) == 0
    launcher.check_nothing_left()
    assert (tmp_path / "finished").exists()


def test_the_status_of_user_errors_is_2(launch):
    status, stdout, stderr = launch(SHOW, "--workers", "0").finish()
    assert (status, stdout) == (2, "")
    assert stderr.startswith("tfdist: --workers cannot be 0.\n  Received: --workers=0 (from the command line)\n")
    assert "Traceback" not in stderr
