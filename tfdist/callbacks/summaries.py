"""What goes into event files, as TensorBoard's plugins read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb

__all__ = ["histogram", "images", "keras_model", "scalars", "table", "text"]


def scalars(values: Mapping[str, float]) -> Any:
    """One summary of numbers by tag."""
    merged = None
    for tag, value in values.items():
        summary = scalar_pb(tag, float(value))
        if merged is None:
            merged = summary
        else:
            merged.value.extend(summary.value)
    return merged


def histogram(tag: str, values: Any) -> Any:
    """The distribution of the elements of an array."""
    return histogram_pb(tag, np.asarray(values))


def text(tag: str, markdown: str) -> Any:
    """A text, in Markdown."""
    return text_pb(tag, markdown)


def table(tag: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """A table, as a text."""
    lines = [head, ["---"] * len(head), *rows]
    return text_pb(tag, "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))


def images(tag: str, pictures: Any) -> Any:
    """Pictures of one size.

    Args:
        tag: The tag.
        pictures: `(number, height, width, channels)`; of integers from 0 to 255, or of floats from 0 to 1.
    """
    array = np.asarray(pictures)
    if array.dtype.kind == "f":
        array = np.clip(array * 255, 0, 255)
    array = array.astype(np.uint8)
    encoded = [tf.io.encode_png(picture).numpy() for picture in array]
    summary = tf.compat.v1.Summary()
    metadata = image_metadata.create_summary_metadata(display_name="", description="")
    summary.value.add(
        tag=tag,
        metadata=tf.compat.v1.SummaryMetadata.FromString(metadata.SerializeToString()),
        tensor=tf.make_tensor_proto([str(array.shape[2]), str(array.shape[1]), *encoded], dtype=tf.string),
    )
    return summary


def keras_model(model: Any) -> Any:
    """The layers of a model for TensorBoard's graph page; None of one that has no JSON.

    As Keras's own callback writes it (keras/src/callbacks/tensorboard.py, `keras_model_summary`, Keras 3.15).
    """
    try:
        described = model.to_json()
    except Exception:  # a model of the user's, which may raise anything
        return None
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "graph_keras_model"
    metadata.plugin_data.content = b"1"
    summary = tf.compat.v1.Summary()
    summary.value.add(tag="keras", metadata=metadata, tensor=tf.make_tensor_proto(described, dtype=tf.string))
    return summary
