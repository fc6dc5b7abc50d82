"""The page of TensorBoard's custom scalars on which a job is seen as a whole."""

from __future__ import annotations

from typing import Any

from tensorboard.plugins.custom_scalar import layout_pb2, summary

__all__ = ["layout_summary"]

_EFFICIENCY = "scaling efficiency"
#: By category, charts and the regular expressions of their tags, which every run of the tree is searched for.
_CHARTS = {
    "Throughput": {
        "examples a second, the job and each worker": ["throughput/examples_per_second"],
        _EFFICIENCY: ["throughput/scaling_efficiency"],
        "steps a second": ["throughput/steps_per_second"],
    },
    "Where the time of a step goes (ms)": {
        "computing": ["time/compute_ms"],
        "waiting for input": ["time/input_ms"],
        "exchanging": ["time/exchange_ms"],
        "waiting for other workers": ["time/wait_ms"],
        "saving": ["time/save_ms"],
        "all of it": ["time/step_ms"],
    },
    "Stragglers": {
        "the slowest worker beside the mean": ["balance/imbalance"],
        "losses, hangs, restarts, new groups, stragglers and saves so far": ["events/.*"],
    },
    "Loss and gradients": {
        "loss by epoch": ["epoch_loss"],
        "loss by step": ["batch_loss"],
        "norm of the gradients, of the job and of each worker's rows": ["gradient/norm"],
    },
    "Memory and network of each worker": {
        "memory of the process (MB)": ["memory/.*"],
        "sent over sockets (MB a second)": ["network/sent_mb_per_second"],
    },
}


def layout_summary(*, with_efficiency: bool) -> Any:
    """The layout as a `Summary`, to be written once.

    Args:
        with_efficiency: Whether scaling efficiency is written.
    """
    categories = [
        layout_pb2.Category(
            title=title,
            chart=[
                layout_pb2.Chart(title=name, multiline=layout_pb2.MultilineChartContent(tag=tags))
                for name, tags in charts.items()
                if with_efficiency or name != _EFFICIENCY
            ],
        )
        for title, charts in _CHARTS.items()
    ]
    return summary.pb(layout_pb2.Layout(category=categories))
