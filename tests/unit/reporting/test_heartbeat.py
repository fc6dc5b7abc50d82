"""A process's heartbeat, as the launcher reads it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tfdist.cluster.heartbeats import heartbeat_file_name, parse_heartbeat
from tfdist.cluster.job_reports import stacks_file_name
from tfdist.reporting import heartbeat
from tfdist.reporting.heartbeat import in_phase, note_batch_ready, seconds_by_phase

pytestmark = pytest.mark.timeout(60)
PROGRAM = """
import os, signal, sys, time
from tfdist.reporting.heartbeat import count_steps, in_phase, leave_signal_to_program, start_heartbeat
if "handler" in sys.argv:
    signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"mine\\n"))
start_heartbeat()
start_heartbeat()
leave_signal_to_program()
if "handler later" in sys.argv:
    signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"mine\\n"))
    leave_signal_to_program()
with in_phase("trace"):
    with in_phase("input"):
        pass
with in_phase("other"):
    for _ in range(1000):
        with in_phase("step"):
            with in_phase("exchange"):
                pass
        count_steps(2)
    print("ready", flush=True)
    sys.stdin.readline()
"""


def start(directory, *arguments, **env):
    job = {
        "TFDIST_JOB_ID": "1",
        "TFDIST_REPORT_DIR": str(directory),
        "TFDIST_TASK": "worker 1",
        "TFDIST_JOB_SECRET": "x",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(job if directory else {}), **env},
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_launcher_reads_what_the_process_does(tmp_path):
    before = time.monotonic()
    process = start(tmp_path)
    beat = parse_heartbeat((tmp_path / heartbeat_file_name("worker 1")).read_bytes())
    process.communicate("\n", timeout=30)
    assert process.returncode == 0
    assert beat.phase == "other"
    assert beat.step == 2 * 999  # the last two are told with the next phase
    assert beat.num_beats == 2 + 2 + 4 * 1000
    assert beat.seconds["trace"] > 0
    assert beat.seconds["input"] == 0  # within a first call it counts as that
    assert before < beat.since < time.monotonic()
    assert 0 < sum(beat.seconds.values()) < beat.since - before


def test_it_writes_its_stacks_when_it_is_asked_to(tmp_path):
    process = start(tmp_path)
    process.send_signal(signal.SIGUSR2)
    until = time.monotonic() + 20
    while "readline" not in (text := (tmp_path / stacks_file_name("worker 1")).read_text()) and "<module>" not in text:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.communicate("\n", timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize("when", ["handler", "handler later"])
def test_a_handler_of_the_programs_own_stays(tmp_path, when):
    process = start(tmp_path, when)
    process.send_signal(signal.SIGUSR2)
    assert process.stdout.readline() == "mine\n"
    process.communicate("\n", timeout=30)
    assert process.returncode == 0
    assert not (tmp_path / stacks_file_name("worker 1")).exists()


def test_without_a_launcher_nothing_is_written(tmp_path):
    process = start(None)
    process.communicate("\n", timeout=30)
    assert process.returncode == 0


class FakeTime:
    now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now + 1e9


def test_what_a_graph_waited_for_its_batch_is_input(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(heartbeat, "time", fake)
    monkeypatch.setattr(heartbeat, "_clock", heartbeat._Clock())
    with in_phase("step"):
        fake.now += 5
        ready = fake.time()
        fake.now += 2
        with in_phase("exchange"):
            note_batch_ready(ready)
            note_batch_ready(fake.time())  # one exchange has told it
            fake.now += 1
        fake.now += 3
        with in_phase("exchange"):
            note_batch_ready(0.0)  # not known
    with in_phase("trace"):
        fake.now += 4
        with in_phase("exchange"):
            note_batch_ready(fake.time())  # a first call is no input
    spent = {phase: seconds for phase, seconds in seconds_by_phase().items() if seconds}
    assert spent == pytest.approx({"input": 5, "step": 5, "exchange": 1, "trace": 4}, abs=1e-6)
