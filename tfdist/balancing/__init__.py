"""Who is slow in a job, why, and what it costs: from the tables that travel with the gradients. Loads no TensorFlow."""

from tfdist.balancing.costs import Cost, cost_of
from tfdist.balancing.rule import Judge, Judgement, Rules, Straggler
from tfdist.balancing.shares import next_shares
from tfdist.balancing.text import describe_judgement, describe_straggler, format_table
from tfdist.balancing.window import COLUMNS, PARTS, Window, summarize_steps

__all__ = [
    "COLUMNS",
    "PARTS",
    "Cost",
    "Judge",
    "Judgement",
    "Rules",
    "Straggler",
    "Window",
    "cost_of",
    "describe_judgement",
    "describe_straggler",
    "format_table",
    "next_shares",
    "summarize_steps",
]
