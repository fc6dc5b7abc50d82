"""Probes: saving."""

import keras

from probe_scenarios.registry import directory, is_chief, leave_note, model_of, probe, wait_for_note

#: The second form is that of two workers which write the same file at the same moment.
EVERY_WORKER_WRITES = "AssertionError: every worker writes|BlockingIOError.*unable to lock file"


def _chief_writes(strategy, name, save):
    """The other worker saves first. It must leave the file to the chief."""
    path = directory() / name
    if is_chief(strategy):
        wait_for_note("saved by the other", limit_s=2.0)
        written = path.exists()
        save(path)
        assert not written, "every worker writes"
    else:
        save(path)
        leave_note("saved by the other")
    assert path.exists()


@probe("saving.saving_lib.save_model", on="multi", fails_with=EVERY_WORKER_WRITES)
def save_a_model(strategy):
    _chief_writes(strategy, "model.keras", model_of(strategy).save)


@probe("saving.saving_lib.save_weights_only", on="multi", fails_with=EVERY_WORKER_WRITES)
def save_weights(strategy):
    _chief_writes(strategy, "model.weights.h5", model_of(strategy).save_weights)


@probe("legacy.saving.legacy_h5_format.save_model_to_hdf5", on="multi", fails_with=EVERY_WORKER_WRITES)
def save_in_the_older_format(strategy):
    _chief_writes(strategy, "model.h5", model_of(strategy).save)


def _backup(strategy):
    callback = keras.callbacks.BackupAndRestore(directory() / "backup")
    callback.set_model(model_of(strategy))
    callback.on_train_begin()
    return callback


@probe("BackupAndRestore._save_model", on="multi", fails_with=EVERY_WORKER_WRITES)
def back_up(strategy):
    callback = _backup(strategy)
    _chief_writes(strategy, "backup/latest.weights.h5", lambda _: callback.on_epoch_end(0))


@probe("BackupAndRestore.on_train_end", on="multi", fails_with="AssertionError: removed by the other")
def remove_the_backup(strategy):
    callback = _backup(strategy)
    if is_chief(strategy):
        (directory() / "backup").mkdir(exist_ok=True)
        leave_note("the backup is there")
        assert wait_for_note("the other has ended")
        there = (directory() / "backup").exists()
        callback.on_train_end()
        leave_note("the chief has ended")
        assert there, "removed by the other"
    else:
        assert wait_for_note("the backup is there")
        callback.on_train_end()
        leave_note("the other has ended")
        assert wait_for_note("the chief has ended")
    assert not (directory() / "backup").exists()
