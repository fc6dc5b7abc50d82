"""Checkpoints as the store makes them, of a few bytes and without TensorFlow."""

import pytest

from tfdist.checkpointing.manifest import Manifest
from tfdist.checkpointing.naming import MANIFEST, CheckpointName
from tfdist.checkpointing.sealing import seal
from tfdist.storage.digests import file_facts
from tfdist.storage.files import LocalFiles


@pytest.fixture
def make_checkpoint(tmp_path):
    def make(step, *, run="aa", number=0, time=None, loss=None, is_complete=True):
        path = tmp_path / str(CheckpointName(step, run, number))
        path.mkdir()
        (path / "state.json").write_text(f'{{"step": {step}}}\n')
        (path / "state.index").write_bytes(bytes(range(100)))
        if is_complete:
            files = {name: file_facts(LocalFiles(), f"{path}/{name}") for name in ("state.json", "state.index")}
            time = 1000.0 + step if time is None else time
            metrics = {} if loss is None else {"loss": loss}
            manifest = Manifest(step=step, epoch=0, time=time, num_tasks=1, files=files, metrics=metrics)
            (path / MANIFEST).write_bytes(seal(manifest.to_json()))
        return path

    return make
