"""TensorFlow's own tutorials, rewritten for Keras 3 with no other tfdist line than the factory, as real jobs."""

import re
from pathlib import Path

import pytest

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(300)
HERE = Path(__file__).resolve().parent


def after(word, text):
    """The numbers on the line that begins with a word."""
    [line] = [line for line in text.splitlines() if line.startswith(f"{word} ")]
    return [float(number) for number in re.findall(r"[-\d.]+", line)]


def test_multi_worker_with_keras(tmp_path):
    pytest.importorskip("sklearn")
    script = HERE / "multi_worker_with_keras.py"
    with LocalCluster(workers=2, script=script, args=["--directory", str(tmp_path)], time_limit_s=200) as cluster:
        results = cluster.join()
    chief, other = results["worker 0"].stdout, results["worker 1"].stdout
    accuracies = after("history", chief)
    assert accuracies[-1] > 0.9
    assert accuracies == after("history", other)
    assert after("evaluated", chief) == after("evaluated", other)
    assert "loaded the same weights" in chief
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith("checkpoint")) == ["model.keras"]


def test_parameter_server_training(tmp_path):
    script = HERE / "parameter_server_training.py"
    with LocalCluster(workers=2, ps=2, script=script, args=["--directory", str(tmp_path)], time_limit_s=200) as cluster:
        chief = cluster.join("chief")["chief"].stdout
    losses = after("losses", chief)
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    assert after("iterations", chief) == [100]
    assert after("shards", chief) == [2]
    yes, no = after("probabilities", chief)
    assert yes > 0.7
    assert no < 0.3
    assert sorted(p.name for p in tmp_path.glob("*.keras")) == [f"ckpt-{epoch}.keras" for epoch in range(1, 6)]
    assert list((tmp_path / "log").rglob("events.out*"))
