"""What tasks learn from the launcher."""

from tfdist.cluster.job_environment import JobEnvironment
from tfdist.launching.console import Console
from tfdist.launching.event_log import EventLog
from tfdist.reporting.launcher_events import LauncherEvents


def environment(directory):
    return JobEnvironment("a", str(directory), "worker 0", "secret").to_env()


def names(events):
    return [event.event for event in events]


def test_each_event_once_and_after_a_checkpoint_again(tmp_path):
    log = EventLog(None, Console(["worker 0"]), tmp_path)
    reader = LauncherEvents(environment(tmp_path))
    assert reader.take() == []
    log.write("lost", task="worker 1", step=3, reason="killed")
    (lost,) = reader.take()
    assert (lost.event, lost.fields) == ("lost", {"task": "worker 1", "step": 3, "reason": "killed"})
    state = reader.state()
    log.write("hang", tasks=["worker 1"], reason="no progress", seconds=3)
    assert names(reader.take()) == ["hang"]
    assert reader.take() == []
    assert names(LauncherEvents(environment(tmp_path)).take_after(state)) == ["hang"]


def test_the_next_attempt_knows_of_the_one_before(tmp_path):
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    for directory in (first, second, other):
        directory.mkdir()
    console = Console(["worker 0"])
    log = EventLog(None, console, first)
    log.write("started", attempt=0, tasks=[])
    reader = LauncherEvents(environment(first))
    assert names(reader.take()) == ["started"]
    state = reader.state()
    log.write("lost", task="worker 1", step=3, reason="killed")
    EventLog(None, console, second, log.told).write("started", attempt=1, tasks=[])
    assert names(LauncherEvents(environment(second)).take_after(state)) == ["lost", "started"]
    EventLog(None, console, other).write("started", attempt=0, tasks=[])
    assert names(LauncherEvents(environment(other)).take_after({**state, "began": 1.0})) == ["started"]


def test_half_a_line_waits_and_nonsense_is_left_out(tmp_path):
    reader = LauncherEvents(environment(tmp_path))
    path = tmp_path / "events-launcher.jsonl"
    path.write_bytes(b'{"event": "lost", "unix_time": 1}\nnonsense\n\xff\n{"event": "ha')
    assert names(reader.take()) == ["lost"]
    with path.open("ab") as file:
        file.write(b'ng", "unix_time": 2}\n')
    assert names(reader.take()) == ["hang"]


def test_without_a_launcher_there_is_nothing(tmp_path):
    reader = LauncherEvents({})
    assert reader.take() == []
