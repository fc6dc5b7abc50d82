"""Running a training function as one task of a job. Facing Keras and TensorFlow."""
