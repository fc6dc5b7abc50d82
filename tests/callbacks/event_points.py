"""What stands in event files, read by TensorBoard's own reader."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.util import tensor_util

_ALL_POINTS = dict.fromkeys(("scalars", "images", "histograms", "text"), 0)


def read_points(directory):
    """By run and tag, the list of (step, value) in the order of the files."""
    multiplexer = EventMultiplexer(size_guidance={"tensors": 0}, tensor_size_guidance=_ALL_POINTS)
    multiplexer.AddRunsFromDirectory(str(directory))
    multiplexer.Reload()
    points = {}
    for run, kinds in multiplexer.Runs().items():
        for tag in kinds["tensors"]:
            events = multiplexer.Tensors(run, tag)
            points[run, tag] = [(event.step, tensor_util.make_ndarray(event.tensor_proto).tolist()) for event in events]
    return points
