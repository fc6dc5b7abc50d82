"""What the containers of `tfdist kubernetes` run, as real processes: a machine with its own address for each pod."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from network_namespaces import Network

pytestmark = pytest.mark.timeout(300)
DIGITS = Path(__file__).parents[2] / "recipes" / "digits.py"
LIMIT_S = 240


def run(*options):
    """The output of each pod, by name, of a job whose manifests are printed with `options`."""
    command = [sys.executable, "-m", "tfdist", "kubernetes", "--name", "train", "--image", "none"]
    command += ["--python", sys.executable, *options, str(DIGITS), "--epochs=2"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    manifests = list(yaml.safe_load_all(printed))
    (shared,) = [manifest["data"] for manifest in manifests if manifest["kind"] == "ConfigMap"]
    pods = []
    for job in (manifest for manifest in manifests if manifest["kind"] == "Job"):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        own = {each["name"]: each.get("value", "a secret") for each in container["env"]}
        for index in range(job["spec"]["completions"]):
            name = f"{job['metadata']['name']}-{index}"  # the pod's host name, and its place in the service
            pods.append((name, container["command"], {**shared, **own, "JOB_COMPLETION_INDEX": str(index)}))
    with Network(len(pods), [f"{name}.train" for name, _, _ in pods]) as network, contextlib.ExitStack() as stack:
        processes = {}
        for (name, program, env), prefix in zip(pods, network.prefixes, strict=True):
            processes[name] = subprocess.Popen(
                [*prefix, *program],
                env={**os.environ, **env, "TF_CPP_MIN_LOG_LEVEL": "2", "TFDIST_SHARED_MEMORY": "0"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(processes[name].communicate)
            stack.callback(processes[name].kill)
        said = {name: process.communicate(timeout=LIMIT_S)[0] for name, process in processes.items()}
        assert [process.returncode for process in processes.values()] == [0] * len(pods), said
    return said


def accuracy(output):
    (line,) = [line for line in output.splitlines() if line.startswith("test_accuracy=")]
    return float(line.partition("=")[2])


def test_two_workers():
    said = run("--workers", "2")
    assert set(said) == {"train-worker-0", "train-worker-1"}
    assert accuracy(said["train-worker-0"]) > 0.7
    assert "test_accuracy" not in said["train-worker-1"]


@pytest.mark.campaign
def test_parameter_servers():
    """The servers end by themselves a minute after the coordinator, with the status that completes their Jobs."""
    said = run("--workers", "1", "--ps", "1")
    assert set(said) == {"train-chief-0", "train-worker-0", "train-ps-0"}
    assert accuracy(said["train-chief-0"]) > 0.5
