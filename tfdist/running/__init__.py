"""Running a training function as one task of a job. Facing Keras and TensorFlow."""

from tfdist.running.run import run

__all__ = ["run"]
