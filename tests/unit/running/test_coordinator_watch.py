"""When a serving task takes its coordinator for gone."""

import pytest

from tfdist.running.coordinator_watch import CoordinatorWatch, Verdict

SERVE, GONE, NEVER = Verdict.SERVE, Verdict.COORDINATOR_GONE, Verdict.COORDINATOR_NEVER_CAME


@pytest.mark.parametrize(
    ("attempts", "verdict"),
    [
        ([(False, 0), (False, 599)], SERVE),
        ([(False, 600)], NEVER),
        ([(True, 599), (False, 658)], SERVE),  # it came in time, and is away for less than the grace
        ([(True, 599), (False, 659)], GONE),
        ([(True, 1), (False, 50), (True, 61), (False, 120)], SERVE),  # it came back
        ([(True, 700)], SERVE),
    ],
)
def test_watch(attempts, verdict):
    watch, last = CoordinatorWatch(began=0, start_timeout_s=600, grace_s=60), None
    for reachable, now in attempts:
        watch, last = watch.observe(reachable, now)
    assert last is verdict
