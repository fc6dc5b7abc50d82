"""A worker that is lost while all train in step: the others say at once who it was."""

import re

import pytest

from tfdist.testing import LocalCluster

SCRIPT = """
    import keras, numpy as np, tfdist
    from tfdist.errors import PeerLostError

    class Tell(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            print("step", batch, flush=True)

    def train():
        strategy = tfdist.auto_strategy()
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        x = np.ones((600_000, 4), "float32")
        try:
            model.fit(x, x[:, :1], batch_size=6, verbose=0, callbacks=[Tell()])
        except PeerLostError as error:
            print("LOST", str(error).replace(chr(10), " | "), flush=True)
            assert np.isfinite(model.get_weights()[0]).all()
            raise SystemExit(7)

    if __name__ == "__main__":
        tfdist.run(train)
"""


@pytest.mark.parametrize("lost", ["worker 0", pytest.param("worker 1", marks=pytest.mark.campaign)])
def test_the_others_name_it(lost):
    with LocalCluster(workers=3, script=SCRIPT, time_limit_s=150) as cluster:
        cluster.wait_for(lambda: "step 5\n" in cluster.stdout(lost), f"{lost} to be training")
        cluster.kill(lost)
        others = [name for name in cluster.task_names if name != lost]
        results = cluster.join(*others, check=False)
    for name, result in results.items():
        assert result.returncode == 7, (name, result)
        [message] = re.findall("^LOST (.*)$", result.stdout, re.MULTILINE)
        assert message.startswith(f"Lost {lost} at 127.0.0.1:"), message
