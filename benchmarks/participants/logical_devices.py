from __future__ import annotations


def make_logical_devices(count: int) -> list[str]:
    """Divides this process's CPU into logical devices, and returns their names."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [device.name for device in tf.config.list_logical_devices("CPU")]
