"""Stock Keras still fails where tfdist overrides it. The day a probe fails, look whether the override can go."""

from __future__ import annotations

import json
import re
from pathlib import Path

import keras
import pytest
from probe_scenarios import PROBES

from tfdist.keras_compat.installation import all_overrides
from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(600)

_PROGRAM = Path(__file__).resolve().parent / "run_probes.py"
_TASKS = {"mirrored": (1, 0), "multi": (2, 0), "ps": (2, 2)}


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    """Returns a function from a kind of strategy to {label: {"installed": ..., "without": ...}} of its chief."""
    found: dict[str, dict[str, dict[str, str]]] = {}

    def run(kind):
        if kind not in found:
            directory = tmp_path_factory.mktemp(kind)
            workers, ps = _TASKS[kind]
            arguments = ["--on", kind, "--out", str(directory)]
            with LocalCluster(workers=workers, ps=ps, script=_PROGRAM, args=arguments, time_limit_s=400) as cluster:
                trainers = ["chief"] if ps else [f"worker {i}" for i in range(workers)]
                cluster.join(*trainers)
            by_chief = sorted(directory.glob("*.json"), reverse=True)  # worker-0 overwrites worker-1
            found[kind] = {
                path.name.split(".json")[0].rpartition(".")[0]: json.loads(path.read_text()) for path in by_chief
            }
        return found[kind]

    return run


def test_every_override_has_a_probe():
    assert set(PROBES) == {override.label for override in all_overrides()}


@pytest.mark.parametrize("label", sorted(PROBES))
def test_probe(outcomes, label):
    probe = PROBES[label]
    outcome = outcomes(probe.on)[label]
    assert outcome["installed"] == "passes"
    if ".".join(keras.__version__.split(".")[:2]) in probe.passes_on:
        assert outcome["without"] == "passes"
        return
    assert outcome["without"] != "passes", f"Keras is mended: {label} can go"
    assert re.search(probe.fails_with, outcome["without"], re.DOTALL), outcome["without"]
