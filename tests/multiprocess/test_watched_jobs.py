"""What is seen of a job: one progress bar, a profile of each worker, the steps of each under parameter servers."""

import re
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.util.tensor_util import make_ndarray

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).with_name("watched_training.py")
STEPS = 20  # of an epoch


def run(directory, kind, **tasks):
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    arguments = [str(directory), kind]
    with LocalCluster(script=SCRIPT, args=arguments, env=env, time_limit_s=200, **tasks) as cluster:
        return cluster.join()


def test_two_workers(tmp_path):
    results = run(tmp_path, "workers", workers=2)
    shown = results["worker 0"].stdout
    assert re.search(rf"{STEPS}/{STEPS}.*examples_per_s: [\d.]+ - loss: |loss: .*examples_per_s: [\d.]+", shown), shown
    assert shown.count("Epoch ") == 2
    assert len(re.findall(r"About 0:0\d:\d\d left for 1 of 2 epochs", shown)) == 1, shown
    assert "Epoch " not in results["worker 1"].stdout
    assert f"/{STEPS}" not in results["worker 1"].stdout
    for index in range(2):
        profiles = list((tmp_path / "workers" / f"worker_{index}" / "plugins" / "profile").rglob("*.xplane.pb"))
        assert len(profiles) == 1, list(tmp_path.rglob("*"))


@pytest.mark.campaign
def test_parameter_servers(tmp_path):
    run(tmp_path, "parameter servers", workers=2, ps=1)
    assert steps_of(tmp_path / "job", "throughput/steps_per_second") == [*range(5, 2 * STEPS + 1, 5)]
    under_way = values_of(tmp_path / "job", "asynchronous/steps_under_way")
    assert under_way
    assert 1 <= max(under_way) <= 4  # two for each worker are scheduled ahead
    staleness = values_of(tmp_path / "job", "asynchronous/staleness")
    assert len(staleness) == len(under_way)
    assert all(0 <= value < 2 * STEPS for value in staleness)
    assert all(map(is_mean_of_whole_numbers, [*under_way, *staleness])), (under_way, staleness)
    assert values_of(tmp_path / "servers" / "ps_0", "memory/host_mb")[0] > 50  # a process with TensorFlow
    runs = [path.name for path in (tmp_path / "workers").iterdir()]
    assert runs
    assert set(runs) <= {"worker_0", "worker_1"}  # which of them made steps is for them to say
    for name in runs:
        assert steps_of(tmp_path / "workers" / name, "time/step_ms")


def is_mean_of_whole_numbers(value, most=12):
    """Whether it may be the mean of up to `most` counts, as no mean of seconds is."""
    return any(abs(value * count - round(value * count)) < 1e-4 for count in range(1, most))


def points_of(run, tag):
    events = [Event.FromString(record) for path in run.iterdir() for record in RawEventFileLoader(str(path)).Load()]
    return [(event.step, value) for event in events for value in event.summary.value if value.tag == tag]


def steps_of(run, tag):
    return [step for step, _ in points_of(run, tag)]


def values_of(run, tag):
    return [float(make_ndarray(value.tensor)) for _, value in points_of(run, tag)]
