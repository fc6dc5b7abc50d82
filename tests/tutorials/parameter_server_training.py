"""After TensorFlow's tutorial "Parameter server training", for Keras 3: `Model.fit`, with a dataset function.

The coordinator, the workers and the parameter servers run this file; `tfdist.run` serves on the latter two. Otherwise
only the factory is tfdist's. The second part trains a text classifier on preprocessed features, with an embedding that
is partitioned over the parameter servers, as the tutorial's custom loop does, through `fit`.
"""

import argparse
import os
import pathlib

import keras
import numpy as np
import tensorflow as tf

import tfdist

NUM_STEPS = 20


def first_part(strategy, directory):
    """Regression on random numbers, with callbacks."""

    def dataset_fn(input_context):
        batch_size = input_context.get_per_replica_batch_size(64)
        x = tf.random.stateless_uniform((128, 10), seed=(1, 2))
        y = tf.reduce_sum(x, axis=1, keepdims=True)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64).repeat()
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        return dataset.batch(batch_size).prefetch(2)

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((10,)), keras.layers.Dense(10), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), loss="mse", steps_per_execution=5)
    callbacks = [
        keras.callbacks.TensorBoard(log_dir=str(directory / "log")),
        keras.callbacks.ModelCheckpoint(filepath=str(directory / "ckpt-{epoch}.keras")),
        keras.callbacks.BackupAndRestore(backup_dir=str(directory / "backup")),
    ]
    history = model.fit(dataset_fn, epochs=5, steps_per_epoch=NUM_STEPS, callbacks=callbacks, verbose=2)
    print("losses", *(f"{loss:.6f}" for loss in history.history["loss"]), flush=True)
    print("iterations", int(model.optimizer.iterations.numpy()), flush=True)


FEATURES = ["avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman"]


def second_part(strategy):
    """Says yes to those of Marvel: an embedding of words, looked up beforehand."""
    marvel = np.array([1, 1, 0, 1, 1, 0, 0])
    lookup = keras.layers.StringLookup(vocabulary=FEATURES, num_oov_indices=0)

    def dataset_fn(_):
        words = tf.random.stateless_uniform((300, 3), seed=(3, 4), maxval=len(FEATURES), dtype=tf.int32)
        is_marvel = tf.reduce_mean(tf.gather(tf.constant(marvel, tf.float32), words), axis=1, keepdims=True) > 0.5
        return (
            tf.data.Dataset.from_tensor_slices((words, tf.cast(is_marvel, tf.float32))).shuffle(200).repeat().batch(32)
        )

    with strategy.scope():
        inputs = keras.layers.Input(shape=(3,), dtype="int32")
        embedding = keras.layers.Embedding(input_dim=len(FEATURES), output_dim=4)
        hidden = keras.layers.GlobalAveragePooling1D()(embedding(inputs))
        model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
        model.compile(keras.optimizers.RMSprop(0.1), "binary_crossentropy", metrics=["accuracy"])
    shards = getattr(embedding.embeddings.value, "variables", None)
    print("shards", len(embedding.embeddings._value.variables) if shards is None else len(shards), flush=True)
    model.fit(dataset_fn, epochs=4, steps_per_epoch=NUM_STEPS, verbose=2)
    words = np.array([["avenger", "ironman", "hulk"], ["batman", "kingkong", "wonder_woman"]])
    probabilities = model.predict(np.asarray(lookup(words)), verbose=0)
    print("probabilities", *(f"{p:.3f}" for p in probabilities.ravel()), flush=True)


def train():
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    directory = parser.parse_args().directory
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=8, max_shards=2)
    strategy = tfdist.parameter_server_strategy(variable_partitioner=partitioner)
    first_part(strategy, directory)
    second_part(strategy)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tfdist.run(train)
