"""What a TensorBoard server shows of three workers of which one is killed: each point once, as without the kill."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard_server import get, scalar_tags, scalars, serving

pytestmark = pytest.mark.timeout(500)
SCRIPT = Path(__file__).with_name("tensorboard_training.py")
WORKERS, STEPS, EPOCHS, KILLED_AFTER = 3, 20, 6, 52  # the last save was after 45 steps


def run(directory, kill_after, *, workers=WORKERS, victim="worker 1"):
    directory.mkdir()
    command = [sys.executable, "-m", "tfdist", "run", "--workers", str(workers), "--max-restarts", "1"]
    job = [*command, str(SCRIPT), str(directory), str(kill_after), victim]
    ended = subprocess.run(job, timeout=300, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-5000:]
    return directory / "logs", json.loads((directory / "history.json").read_text())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return run(tmp_path_factory.mktemp("tensorboard") / "undisturbed", 0)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tensorboard") / "restarted"
    found = run(directory, KILLED_AFTER)
    assert (directory / "killed").read_text() == str(KILLED_AFTER)
    return found


def curves(address, history):
    """What the server says of training and validation, by run and tag."""
    names = [("validation", name[4:]) if name.startswith("val_") else ("train", name) for name in history]
    expected = [(run, f"epoch_{name}") for run, name in names]
    tags = scalar_tags(address, [*expected, ("train", "batch_loss"), ("job", "balance/workers")])
    found = {(run, tag): scalars(address, run, tag) for run in ("train", "validation") for tag in tags[run]}
    for (run, tag), values in zip(expected, history.values(), strict=True):
        assert found[run, tag] == [(epoch, pytest.approx(value, rel=1e-6)) for epoch, value in enumerate(values)]
    return found, tags


def check(server, job):
    logs, history = job
    with serving(logs, "--load_fast", server) as address:
        found, tags = curves(address, history)
        assert [step for step, _ in found["train", "batch_loss"]] == list(range(1, STEPS * EPOCHS + 1))
        check_workers(address, tags)
        layout = get(address, "plugin/custom_scalars/layout")
        assert layout["category"][0]["title"] == "Throughput"
    return found


def test_each_point_once_after_a_restart(restarted):
    check("true", restarted)


@pytest.mark.campaign
def test_as_without_a_restart(undisturbed, restarted):
    """By TensorBoard's reader in Python, and by the fast one, which is the default."""
    logs, history = undisturbed
    assert restarted[1] == history
    with serving(logs) as address:
        right, _ = curves(address, history)
    for server in ("true", "false"):
        assert check(server, restarted) == right


def check_workers(address, tags):
    runs = [f"workers/worker_{index}" for index in range(WORKERS)]
    assert set(tags) == {"train", "validation", "job", *runs}
    rates = {run: dict(scalars(address, run, "throughput/examples_per_second")) for run in ("job", *runs)}
    assert {*rates["job"]} == {*range(10, STEPS * EPOCHS + 1, 10)}
    for step, total in rates["job"].items():
        assert total == pytest.approx(sum(rates[run][step] for run in runs), rel=0.01)
    for run in ("job", *runs):
        for tag in tags[run]:
            steps = [step for step, _ in scalars(address, run, tag)]
            assert steps == sorted(set(steps)), (run, tag)
    for part in ("input", "compute", "exchange", "wait", "save", "step"):
        assert f"time/{part}_ms" in tags[runs[1]]
        assert "gradient/norm" in tags[run]
        assert all(0 < norm < 100 for _, norm in scalars(address, run, "gradient/norm"))
    assert [value for _, value in scalars(address, "job", "events/restart")] == [1]
    lost = scalars(address, "job", "events/lost")  # the others end, too: how many do so before they are asked, varies
    assert [step for step, _ in lost] == [scalars(address, "job", "events/restart")[0][0]]
    assert "worker 1 was killed by SIGKILL" in str(get(address, "plugin/text/text", run="job", tag="events/what"))
    assert scalars(address, "job", "events/resumed")
    assert scalars(address, "job", "events/saved")


@pytest.mark.campaign
def test_the_chief_of_an_elastic_job_is_lost(tmp_path):
    """The next one goes on in the same curves."""
    logs, _ = run(tmp_path / "elastic", KILLED_AFTER, workers="2:3", victim="worker 0")
    with serving(logs) as address:
        expected = [
            ("train", "epoch_loss"),
            ("train", "batch_loss"),
            ("validation", "epoch_loss"),
            ("job", "events/lost"),
        ]
        scalar_tags(address, expected)
        assert [step for step, _ in scalars(address, "train", "batch_loss")] == list(range(1, STEPS * EPOCHS + 1))
        for each in ("train", "validation"):
            assert [step for step, _ in scalars(address, each, "epoch_loss")] == list(range(EPOCHS))
        (lost,) = scalars(address, "job", "events/lost")
        assert KILLED_AFTER <= lost[0] <= KILLED_AFTER + 10
        assert "worker 0 was killed by SIGKILL" in str(get(address, "plugin/text/text", run="job", tag="events/what"))
