"""After TensorFlow's tutorial "Multi-worker training with Keras", for Keras 3: a small convolutional network on digits.

Each worker runs this file. Only the factory is tfdist's. As in the tutorial, the chief saves where it was asked to and
the other workers save to a scratch place that they remove; a checkpoint is read back and evaluated.
"""

import argparse
import pathlib
import shutil

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tfdist

PER_WORKER_BATCH = 64


def digits(global_batch):
    """An endless shuffled dataset of global batches, as the tutorial's."""
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8).astype("float32")) / 16.0
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000).repeat().batch(global_batch)


def build_and_compile():
    model = keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Reshape((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.1),
        metrics=["accuracy"],
    )
    return model


def is_chief(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    directory = parser.parse_args().directory

    strategy = tfdist.multi_worker_mirrored_strategy()
    resolver = strategy.cluster_resolver
    num_workers = strategy.num_replicas_in_sync
    with strategy.scope():
        dataset = digits(PER_WORKER_BATCH * num_workers)
        model = build_and_compile()
    history = model.fit(dataset, epochs=4, steps_per_epoch=50)
    print("history", *(f"{value:.6f}" for value in history.history["accuracy"]), flush=True)

    path = directory / "model.keras"
    if not is_chief(resolver.task_type, resolver.task_id):
        scratch = directory / f"scratch_{resolver.task_id}"
        scratch.mkdir()
        path = scratch / "model.keras"
    model.save(path)
    if not is_chief(resolver.task_type, resolver.task_id):
        shutil.rmtree(path.parent)

    checkpoint = tf.train.Checkpoint(weights=[tf.Variable(w) for w in model.get_weights()])
    if is_chief(resolver.task_type, resolver.task_id):
        checkpoint.save(str(directory / "checkpoint"))
        loaded = keras.models.load_model(path)
        same = all(np.array_equal(a, b) for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True))
        print("loaded the same weights" if same else "loaded other weights", flush=True)
    loss, accuracy = model.evaluate(dataset, steps=10)
    print(f"evaluated {loss:.6f} {accuracy:.6f}", flush=True)


if __name__ == "__main__":
    main()
