"""`tfdist.verify` in a real Jupyter kernel, of functions and classes that only the notebook's cells have."""

import pytest

CELLS = [
    """
import dataclasses
import keras, numpy as np, tensorflow as tf, tfdist

x = np.random.normal(size=(20, 3)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1] + 1)).shuffle(20).batch(8)
table = np.ones((500, 1000))
tf.reduce_sum(x).numpy() < 1e9      # TensorFlow is in use
""",
    """
@dataclasses.dataclass(frozen=True)
class Config:
    rate: float = 0.1
    units: list = dataclasses.field(default_factory=lambda: [1])

class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((y - self(x, training=True)) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}

config = Config()

def build_fn():
    inputs = keras.Input((3,))
    model = Own(inputs, keras.layers.Dense(config.units[0] * int(table[0, 0]), name="head")(inputs))
    model.compile(keras.optimizers.SGD(config.rate))
    return model
""",
    "tfdist.verify(build_fn, dataset, steps=2)",
]


@pytest.mark.campaign
def test_cells_of_a_notebook(tmp_path):
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    [shown] = [o for o in notebook.cells[-1].outputs if o.output_type == "execute_result"]
    text = shown.data["text/plain"]
    assert text.startswith("tfdist verify: DIFFERS from one device, 2 steps on 2 replicas.\n1. step 0: gradient head/")
    assert "Likely cause: wrong loss scaling" in text
