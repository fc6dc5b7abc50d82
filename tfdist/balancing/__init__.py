"""Who is slow in a job, why, and what it costs: from the tables that travel with the gradients. Loads no TensorFlow."""

from tfdist.balancing.asynchronous import (
    AsynchronousLoad,
    describe_asynchronous_load,
    format_asynchronous_load,
    slow_workers,
)
from tfdist.balancing.costs import Cost, cost_of
from tfdist.balancing.rates import Rates, summarize_rates
from tfdist.balancing.rule import Judge, Judgement, Rules, Straggler
from tfdist.balancing.shares import next_shares
from tfdist.balancing.text import describe_judgement, describe_straggler, format_table
from tfdist.balancing.window import COLUMNS, PARTS, Window, summarize_steps

__all__ = [
    "COLUMNS",
    "PARTS",
    "AsynchronousLoad",
    "Cost",
    "Judge",
    "Judgement",
    "Rates",
    "Rules",
    "Straggler",
    "Window",
    "cost_of",
    "describe_asynchronous_load",
    "describe_judgement",
    "describe_straggler",
    "format_asynchronous_load",
    "format_table",
    "next_shares",
    "slow_workers",
    "summarize_rates",
    "summarize_steps",
]
