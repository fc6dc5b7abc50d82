"""The manifests for Kubernetes."""

import dataclasses
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tfdist.cluster.resolution import resolve_cluster
from tfdist.errors import ArgumentError
from tfdist.launching.kubernetes_manifests import FORMATS, KubernetesJob, Resources, write_manifests
from tfdist.launching.yaml_text import format_yaml

GOLDEN = Path(__file__).with_name("kubernetes_manifests")
JOB = KubernetesJob("train", "images/train:1", ["python", "-u", "train.py", "a b", "$(HOME) $x"], 4)
JOBS = {
    "workers": JOB,
    "parameter_servers": dataclasses.replace(
        JOB, parameter_servers=2, resources=Resources("4", "8Gi", 2), volume_claim="shared", max_restarts=1
    ),
}
VERSIONS = ("1.29.0", "1.31.0", "1.34.0", "1.37.0")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", JOBS)
def test_the_whole_text(name, kind):
    text = format_yaml(write_manifests(dataclasses.replace(JOBS[name], kind=kind)))
    assert text == (GOLDEN / f"{name}_{kind}.yaml").read_text()
    assert list(yaml.safe_load_all(text)) == write_manifests(dataclasses.replace(JOBS[name], kind=kind))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", JOBS)
def test_kubernetes_takes_them(name, version):
    """By the schemas that Kubernetes has published. `strict`: no field is unknown."""
    manifests = write_manifests(JOBS[name])
    assert {"ConfigMap", "Service", "Job"} <= {manifest["kind"] for manifest in manifests}
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["jobset", "tfjob"])
@pytest.mark.parametrize("name", JOBS)
def test_kubernetes_takes_what_is_within_those_of_others(name, kind, version):
    """The schemas of JobSet and TFJob are not Kubernetes's own; the jobs and pods that they make are."""
    for manifest in write_manifests(dataclasses.replace(JOBS[name], kind=kind)):
        if manifest["kind"] == "JobSet":
            specs = [("batch/v1", "Job", each["template"]["spec"]) for each in manifest["spec"]["replicatedJobs"]]
        elif manifest["kind"] == "TFJob":
            templates = [each["template"] for each in manifest["spec"]["tfReplicaSpecs"].values()]
            specs = [("v1", "Pod", {**each["spec"], "restartPolicy": "OnFailure"}) for each in templates]
        else:
            specs = [(manifest["apiVersion"], manifest["kind"], manifest.get("spec", {}))]
        for api_version, of_kind, spec in specs:
            inner = {"apiVersion": api_version, "kind": of_kind, "metadata": {"name": "x"}, "spec": spec}
            if of_kind == "ConfigMap":
                inner = manifest
            kubernetes_validate.validate(inner, version, strict=True)


def test_the_validator_finds_faults():
    (*_, job) = write_manifests(JOB)
    job["spec"]["template"]["spec"]["restartPolicies"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


def expand(word):
    """What the kubelet makes of a word of a command that names no variable (third_party/forked/golang/expansion)."""
    return word.replace("$$", "$")


@pytest.mark.parametrize("kind", ["job", "jobset"])
@pytest.mark.parametrize("name", JOBS)
def test_every_pod_finds_the_same_cluster(name, kind):
    job = dataclasses.replace(JOBS[name], kind=kind)
    manifests = write_manifests(job)
    (shared,) = [manifest["data"] for manifest in manifests if manifest["kind"] == "ConfigMap"]
    if kind == "job":
        jobs = [(manifest["metadata"]["name"], manifest["spec"]) for manifest in manifests if manifest["kind"] == "Job"]
    else:
        replicated = manifests[-1]["spec"]["replicatedJobs"]
        jobs = [(f"train-{each['name']}-0", each["template"]["spec"]) for each in replicated]
    clusters, tasks = set(), []
    for job_name, spec in jobs:
        (container,) = spec["template"]["spec"]["containers"]
        assert [expand(word) for word in container["command"]] == list(job.command)
        for index in range(spec["completions"]):
            own = {each["name"]: each["value"] for each in container["env"] if "value" in each}
            config = resolve_cluster(None, {**shared, **own, "JOB_COMPLETION_INDEX": str(index)})
            clusters.add(str(config.cluster))
            task_type, task_id = config.task_name.split() if " " in config.task_name else (config.task_name, "0")
            assert config.cluster[task_type][int(task_id)] == f"{job_name}-{index}.train:20000"
            tasks.append(config.task_name)
    assert len(clusters) == 1
    assert len(set(tasks)) == len(tasks) == (4 if name == "workers" else 7)


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        *(("name", {"name": name}) for name in ("", "Train", "1st", "a-", "-a", "a.b", "a" * 41, "a b", "train\n")),
        *(("image", {"image": image}) for image in ("", "an image")),
        ("volume-claim", {"volume_claim": "My_Claim"}),
        ("volume-size", {"volume_size": "ten"}),
        ("cpus", {"resources": Resources(cpus="4 cores")}),
        ("memory", {"resources": Resources(memory="8GB")}),
        ("mount-path", {"mount_path": "relative"}),
    ],
)
def test_what_kubernetes_would_not_take(option, changes):
    with pytest.raises(ArgumentError, match=f"--{option}="):
        dataclasses.replace(JOB, **changes)


def test_the_secret_is_in_none_of_them():
    for kind in FORMATS:
        text = format_yaml(write_manifests(dataclasses.replace(JOB, kind=kind)))
        assert 'kind: "Secret"' not in text
        assert text.count("secretKeyRef") == text.count("TFDIST_JOB_SECRET") == 1


def test_a_long_name_leaves_room_for_the_names_of_pods():
    job = dataclasses.replace(JOB, name="a" * 40)
    assert all(len(f"{manifest['metadata']['name']}-0-9999") <= 63 for manifest in write_manifests(job))


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.text(max_size=5), documents, max_size=4), min_size=1, max_size=3))
def test_any_text_can_be_read_again(given_documents):
    assert list(yaml.safe_load_all(format_yaml(given_documents))) == given_documents
