"""The command `tfdist`. Loads no TensorFlow."""
