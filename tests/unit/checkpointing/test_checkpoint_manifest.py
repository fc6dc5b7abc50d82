"""Manifests, part files and names: what is written is read, and anything else is refused in words."""

import json

import pytest

from tfdist.checkpointing.manifest import (
    FileFacts,
    Manifest,
    ManifestError,
    NewerFormatError,
    Part,
    comparable_metrics,
    parse_manifest,
    parse_part,
)
from tfdist.checkpointing.naming import CheckpointName, is_plain_file_name, parse_checkpoint_name, parse_run_note_name
from tfdist.checkpointing.sealing import DamagedError, TornError, seal, unseal

FACTS = FileFacts(12, "ab" * 32)
MANIFEST = Manifest(
    step=120,
    epoch=3,
    time=1.5,
    num_tasks=2,
    files={"state.index": FACTS},
    metrics={"loss": 0.5},
    cluster={"strategy": "MirroredStrategy", "replicas": 2},
    versions={"tfdist": "0.1"},
    compression="gzip",
)


def test_what_is_written_is_read():
    assert parse_manifest(json.loads(json.dumps(MANIFEST.to_json()))) == MANIFEST
    part = Part(1, {"task-00001.json": FACTS})
    assert parse_part(unseal(seal(part.to_json()))) == part
    with pytest.raises(ManifestError, match="problem is no text"):
        parse_part({**part.to_json(), "problem": None})
    assert MANIFEST.size_bytes == 12


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"step": "120"}, "step is no whole number"),
        ({"step": -1}, "step is no whole number"),
        ({"step": True}, "step is no whole number"),
        ({"num_tasks": 0}, "num_tasks is no whole number from 1 on"),
        ({"time": "now"}, "time is no number"),
        ({"files": []}, "files is no JSON object"),
        ({"files": {"state": None}}, "the facts about state are no JSON object"),
        ({"files": {"state": {"size_bytes": 1, "sha256": "xy"}}}, "the digest of state is none"),
        ({"files": {"state": {"size_bytes": -1, "sha256": "ab" * 32}}}, "size_bytes is no whole number"),
        ({"metrics": {"loss": "low"}}, "loss is no number"),
        ({"compression": "zip"}, "compression is 'zip'"),
        ({"format": None}, "format is no whole number"),
    ],
)
def test_manifests_that_are_none(change, expected):
    with pytest.raises(ManifestError, match=expected):
        parse_manifest({**MANIFEST.to_json(), **change})


def test_every_field_is_needed():
    for name in MANIFEST.to_json():
        if name != "compression":
            with pytest.raises(ManifestError):
                parse_manifest({key: value for key, value in MANIFEST.to_json().items() if key != name})


def test_a_newer_format_is_said_to_be_one():
    with pytest.raises(NewerFormatError, match="its format is 2"):
        parse_manifest({**MANIFEST.to_json(), "format": 2})


ESCAPING = ["../state", "/etc/passwd", "a/b", "..", ".", ".hidden", "", "a\0b", "a\n", "gs://b/o", "-r", "x" * 201]


@pytest.mark.parametrize("name", ESCAPING)
def test_names_that_leave_the_directory(name):
    assert not is_plain_file_name(name)
    with pytest.raises(ManifestError, match="no name of a file"):
        parse_manifest({**MANIFEST.to_json(), "files": {name: {"size_bytes": 1, "sha256": "ab" * 32}}})


@pytest.mark.parametrize("name", ["state.data-00000-of-00001", "task-00001.json", "state.index.gz"])
def test_names_that_stay(name):
    assert is_plain_file_name(name)


def test_names_of_checkpoints():
    name = CheckpointName(120, "9f3a1c2e", 4)
    assert str(name) == "step-000000120-9f3a1c2e-4"
    assert parse_checkpoint_name(str(name)) == name
    assert parse_checkpoint_name(str(CheckpointName(12345678901, "a", 10))).step == 12345678901
    for text in ("step-120-9f3a1c2e-4", "step-000000120", "step-000000120-9f3a1c2e-4.tmp", "step-000000120-XY-4", "x"):
        assert parse_checkpoint_name(text) is None
    assert parse_run_note_name("run-9f3a1c2e.json") == "9f3a1c2e"
    assert parse_run_note_name("run-.json") is None


def test_a_seal_tells_a_killed_writer_from_a_later_change():
    data = seal(MANIFEST.to_json())
    assert unseal(data) == json.loads(json.dumps(MANIFEST.to_json()))
    for size in range(len(data)):
        with pytest.raises(TornError):
            unseal(data[:size])
    for size in (1, len(data)):
        with pytest.raises(TornError):
            unseal(b"\0" * size)
    for position in range(len(data)):
        for bit in (1, 128):
            changed = bytearray(data)
            changed[position] ^= bit
            with pytest.raises((TornError, DamagedError)):
                unseal(bytes(changed))
    with pytest.raises(DamagedError):
        unseal(data.replace(b'"step": 120', b'"step": 121'))
    with pytest.raises((TornError, DamagedError)):
        unseal(data + b"\n")


def test_metrics_that_can_be_compared():
    values = {"loss": 1, "nan": float("nan"), "inf": float("inf"), "flag": True, "text": "x"}
    assert comparable_metrics(values) == {"loss": 1.0}
    assert comparable_metrics(None) == {}
