"""Trains a small convolutional network on scikit-learn's 1,797 handwritten digits, alone or distributed.

The same file, unchanged, under every way of starting it:

    python recipes/digits.py
    python recipes/digits.py --strategy=mirrored --logical_devices=2
    tfdist run --workers 2 recipes/digits.py
    tfdist run --workers 4 recipes/digits.py
    tfdist run --workers 2 --ps 1 recipes/digits.py
    tfdist run --workers 2 --ps 2 recipes/digits.py

On a cluster, set TF_CONFIG on each machine and start `python recipes/digits.py` there. The last line that the chief
prints is `test_accuracy=0.9...`, the share of 360 held-out digits that it reads right. Needs the extra `recipes`:
`pip install 'tfdist[recipes]'`.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tfdist

STRATEGIES = {
    "auto": tfdist.auto_strategy,
    "mirrored": tfdist.mirrored_strategy,
    "multi_worker_mirrored": tfdist.multi_worker_mirrored_strategy,
    "parameter_server": tfdist.parameter_server_strategy,
}

FLAGS = flags.FLAGS
flags.DEFINE_enum("strategy", "auto", sorted(STRATEGIES), "How to distribute; auto fits the cluster and the devices.")
flags.DEFINE_integer("logical_devices", 1, "Into how many devices to divide the CPU of this process.", lower_bound=1)
flags.DEFINE_integer("batch_size", 64, "Rows of a global batch, whatever the number of workers.", lower_bound=1)
flags.DEFINE_integer("epochs", 15, "How often to go over the training digits.", lower_bound=1)
flags.DEFINE_float("learning_rate", 3e-3, "Adam's learning rate at the start; it falls to 0.", lower_bound=0.0)
flags.DEFINE_integer("seed", 0, "Seed of the initial weights, the order of the digits, and dropout.", lower_bound=0)

Split = tuple[np.ndarray, np.ndarray]


def load_data() -> tuple[Split, Split]:
    """Returns the digits to train on and those to test on: images of shape (rows, 8, 8, 1) in [0, 1], and labels."""
    digits = load_digits()
    images = (digits.images[..., np.newaxis] / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    # The split does not depend on --seed, so that the accuracies of several seeds can be compared.
    x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=360, stratify=labels, random_state=0)
    return (x_train, y_train), (x_test, y_test)


def build_model() -> keras.Model:
    """Returns a network of some 60,000 weights: two convolutions and two dense layers."""
    return keras.Sequential(
        [
            keras.Input(shape=(8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(96, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def train() -> None:
    """Trains and tests on this process, or as one of several that run this function together."""
    keras.utils.set_random_seed(FLAGS.seed)
    if FLAGS.logical_devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * FLAGS.logical_devices
        tf.config.set_logical_device_configuration(cpu, parts)

    strategy = STRATEGIES[FLAGS.strategy]()  # before anything runs in TensorFlow
    train_digits, test_digits = load_data()
    train_data = tf.data.Dataset.from_tensor_slices(train_digits).shuffle(2000).batch(FLAGS.batch_size)
    test_data = tf.data.Dataset.from_tensor_slices(test_digits).batch(FLAGS.batch_size)

    with strategy.scope():
        model = build_model()
        num_steps = FLAGS.epochs * len(train_data)
        learning_rate = keras.optimizers.schedules.CosineDecay(FLAGS.learning_rate, num_steps)
        model.compile(
            optimizer=keras.optimizers.Adam(learning_rate),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )

    is_chief = tfdist.cluster_config().is_chief
    verbose = 2 if is_chief else 0
    model.fit(train_data, epochs=FLAGS.epochs, verbose=verbose)
    results = model.evaluate(test_data, verbose=verbose, return_dict=True)
    if is_chief:
        print(f"test_accuracy={results['accuracy']:.4f}")


def main(argv: list[str]) -> None:
    """Starts the training function, or serves it, as this process's task in the cluster asks."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
    tfdist.run(train)


if __name__ == "__main__":
    app.run(main)
