"""One process with four logical CPU devices, as in the other directories: one process runs them all.

There is one strategy, of two of them; records go to a temporary directory.
"""

import pytest
import tensorflow as tf

_CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 4)


@pytest.fixture(scope="session")
def strategy():
    import tfdist
    from tfdist.keras_compat.installation import uninstall

    yield tfdist.mirrored_strategy(["CPU:0", "CPU:1"])
    uninstall()


@pytest.fixture
def compare(tmp_path, strategy):
    """Returns a function that verifies a model on two replicas of this process."""
    from tfdist.cluster.job_environment import VerifyEnvironment
    from tfdist.recording.runs import run_on_one_device, run_on_replicas
    from tfdist.verification import compare_runs
    from tfdist.verification.record import REPLICAS, load_runs

    def compare(build_fn, dataset, steps=3):
        def load():
            return build_fn, lambda: dataset

        run_on_replicas(strategy, load, VerifyEnvironment(REPLICAS, str(tmp_path), steps))
        run_on_one_device(load, tmp_path, steps)
        return compare_runs(*load_runs(tmp_path))

    return compare
