"""Directories of checkpoints: which there are, whether they are whole, and removing them. Loads no TensorFlow.

File systems that only TensorFlow reaches come in as a `Files` that `snapshots` makes.
"""
