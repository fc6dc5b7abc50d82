"""For each override a scenario that fails when it is taken away.

A scenario is a function of a strategy that a tfdist factory made. It raises, an AssertionError or what Keras raises,
where Keras is not mended. `run_probes.py` runs it with everything installed, when it must pass, and then without the
override, when it must fail as `fails_with` says: on the day Keras is mended it passes, and the override can go.
"""

from probe_scenarios import losses, optimizers, saving, trainer, variables
from probe_scenarios.registry import PROBES

__all__ = ["PROBES", "losses", "optimizers", "saving", "trainer", "variables"]
