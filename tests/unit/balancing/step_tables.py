"""Tables of steps as workers would tell them, from what each one does."""

import numpy as np

from tfdist.balancing import COLUMNS


def tables(num_steps, num_workers, *, slow=None, transfer=0.002, noise=0.0, seed=0, **parts):
    """Steps of workers that take 10 ms to compute and 1 ms for all else.

    `slow` is by worker, and by part, seconds beside that of the others, a number or a function of the step.
    """
    draw = np.random.default_rng(seed)
    base = {"input": 0.0, "compute": 0.010, "save": 0.0, "other": 0.001} | parts
    made = []
    for step in range(num_steps):
        table = np.zeros((num_workers, len(COLUMNS)))
        for column, seconds in base.items():
            table[:, COLUMNS.index(column)] = seconds * (1 + noise * draw.standard_normal(num_workers).clip(-2, 2))
        for worker, by_part in (slow or {}).items():
            for part, seconds in by_part.items():
                table[worker, COLUMNS.index(part)] += seconds(step) if callable(seconds) else seconds
        own = table[:, : COLUMNS.index("exchange")].sum(axis=1)
        table[:, COLUMNS.index("exchange")] = own.max() - own + transfer
        table[:, COLUMNS.index("rows")] = 8
        made.append(table)
    return made
