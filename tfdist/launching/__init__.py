"""The launcher: starts the tasks of a job on this machine, watches them, and ends them all.

Pure: `plan`, `lifecycle`, `lines`, `root_cause`, `summary`. The rest acts on what they decide. Loads no TensorFlow.
"""
