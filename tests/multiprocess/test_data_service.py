"""Input from tf.data's service: whoever asks gets the next batch, and every row is trained on once."""

import json

import pytest
import tensorflow as tf

from tfdist.testing import LocalCluster

pytestmark = pytest.mark.timeout(200)
ROWS = 960  # more than the buffers of one worker hold: training in step, the other one gets some, too

TRAIN = """
    import json, sys
    import keras, numpy as np, tensorflow as tf, tfdist

    ROWS, SERVICE = 960, sys.argv[1]
    seen = []

    class Ledger(keras.layers.Layer):
        def call(self, inputs, training=False):
            def note(x):
                seen.extend(int(round(float(number))) for number in x[:, 0] if number)  # 0 is no row of the data
                return x
            if training:
                noted = tf.numpy_function(note, [inputs], tf.float32)
                noted.set_shape(inputs.shape)
                return inputs + 0.0 * tf.stop_gradient(noted)
            return inputs

    def read(context):
        x = np.arange(1, ROWS + 1, dtype="float32")[:, None]
        data = tf.data.Dataset.from_tensor_slices((x, 0 * x)).shuffle(ROWS, seed=1).batch(4)
        return data.apply(
            tf.data.experimental.service.distribute(
                tf.data.experimental.service.ShardingPolicy.DYNAMIC, f"grpc://{SERVICE}", job_name="train"
            )
        )

    def train():
        strategy = tfdist.multi_worker_mirrored_strategy()
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((1,)), Ledger(), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        data = strategy.distribute_datasets_from_function(read)
        model.fit(data, epochs=1, verbose=0)
        print("result", json.dumps(seen), flush=True)

    if __name__ == "__main__":
        tfdist.run(train)
"""


def test_batches_go_to_whoever_asks():
    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.partition("://")[2]
    helpers = [
        tf.data.experimental.service.WorkerServer(tf.data.experimental.service.WorkerConfig(dispatcher_address=address))
        for _ in range(2)
    ]
    with LocalCluster(workers=2, script=TRAIN, args=[address], time_limit_s=150) as cluster:
        results = cluster.join()
    del helpers
    seen = [json.loads(each.stdout.partition("result ")[2]) for each in results.values()]
    assert all(seen)
    assert sorted(row for rows in seen for row in rows) == list(range(1, ROWS + 1))
