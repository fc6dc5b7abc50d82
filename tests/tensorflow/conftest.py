"""One process with four logical CPU devices, as in the other directories: one process runs them all."""

import pytest
import tensorflow as tf

_CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 4)


@pytest.fixture(autouse=True)
def _stock_keras_afterwards():
    from tfdist.keras_compat.installation import uninstall

    yield
    uninstall()
