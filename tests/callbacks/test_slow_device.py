"""A slow one of several devices of one process. Logical CPU devices stand in for the GPUs of a machine."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(200)

TRAIN = """
    import json, sys, time
    import keras, numpy as np, tensorflow as tf, tfdist

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
    slow = sys.argv[1]

    class Slow(keras.layers.Layer):
        def call(self, inputs):
            context = tf.distribute.get_replica_context()
            is_slow = context and str(tf.get_static_value(context.replica_id_in_sync_group)) == slow
            if not is_slow and slow != "all":
                return inputs
            def wait(value):
                time.sleep(0.03)
                return value
            # Not stateful: TensorFlow would let the replicas wait for each other.
            waited = tf.numpy_function(wait, [inputs], tf.float32, stateful=False)
            waited.set_shape(inputs.shape)
            return waited

    with tfdist.mirrored_strategy(["CPU:0", "CPU:1", "CPU:2"]).scope():
        model = keras.Sequential([keras.layers.Input((4,)), Slow(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones((24, 4), "float32"), np.ones((24, 1), "float32")))
    data = data.batch(24).repeat()
    # A first call without the monitor, whose steps tell nothing of their time.
    model.fit(data, steps_per_epoch=5, verbose=0)
    monitor = tfdist.callbacks.LoadBalanceMonitor(window_steps=10)
    model.fit(data, steps_per_epoch=40, epochs=2, verbose=0, callbacks=[monitor])
    judgement = monitor.judgement
    found = [[each.worker, each.part] for each in judgement.stragglers]
    print("result", json.dumps({"found": found, "rows": judgement.window.rows, "report": str(monitor.report())}))
"""


@pytest.mark.parametrize(("slow", "expected"), [("1", [[1, "compute"]]), ("all", [])])
def test_a_slow_device(slow, expected, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("\n".join(line.removeprefix("    ") for line in TRAIN.splitlines()))
    done = subprocess.run([sys.executable, str(script), slow], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.partition("result ")[2])
    assert result["found"] == expected, result["report"]
    assert result["rows"] == [8, 8, 8]
    assert ("device 1 is slow in " in done.stderr) == bool(expected)
