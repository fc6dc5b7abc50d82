"""What follows the end of an attempt, as tables, and a job of 1,000 workers that fail at random."""

import random

import pytest

from tfdist.launching.restarts import AttemptEnd, GiveUp, Restart, RestartPolicy, decide_restart, is_preemption

POLICY = RestartPolicy(max_restarts=5, max_preemptions=2, first_delay_s=1, max_delay_s=6, same_failure_limit=3)


def failed(place="", step=None):
    return AttemptEnd("worker 1 failed", place, step)


PREEMPTED = AttemptEnd("worker 0 ended with status 75", "", is_preempted=True)
ENDED = AttemptEnd("the launcher received SIGTERM", "", may_restart=False)


@pytest.mark.parametrize(
    ("ends", "decision"),
    [
        ([failed("a")], Restart(1.0, "failed 1 of at most 5 times (--max-restarts)")),
        ([failed("a"), failed("b")], Restart(2.0, "failed 2 of at most 5 times (--max-restarts)")),
        ([failed(), failed(), failed(), failed()], Restart(6, "failed 4 of at most 5 times (--max-restarts)")),
        ([failed()] * 6, GiveUp("failed 6 times, and --max-restarts=5")),
        ([failed("a", 10), failed("b", 90)], Restart(1.0, "failed 2 of at most 5 times (--max-restarts)")),
        ([failed("a", 90), failed("b", 10)], Restart(2.0, "failed 2 of at most 5 times (--max-restarts)")),
        ([PREEMPTED], Restart(0.0, "preempted 1 of at most 2 times (--max-preemptions)")),
        ([PREEMPTED] * 3, GiveUp("preempted 3 times, and --max-preemptions=2")),
        ([failed()] * 5 + [PREEMPTED], Restart(0.0, "preempted 1 of at most 2 times (--max-preemptions)")),
        ([PREEMPTED] * 2 + [failed()], Restart(1.0, "failed 1 of at most 5 times (--max-restarts)")),
        ([ENDED], GiveUp("")),
        ([failed("a"), ENDED], GiveUp("")),
    ],
)
def test_what_follows(ends, decision):
    assert decide_restart(POLICY, ends) == decision


def test_nobody_asked_for_restarts():
    assert decide_restart(RestartPolicy(), [failed()]) == GiveUp("")


def test_the_same_failure_again_and_again_is_no_bad_luck():
    ends = [failed("ValueError: bad batch", 7)] * 3
    assert decide_restart(POLICY, ends[:2]) == Restart(2.0, "failed 2 of at most 5 times (--max-restarts)")
    decision = decide_restart(POLICY, ends)
    assert isinstance(decision, GiveUp)
    assert decision.reason.startswith("the same failure at step 7 came 3 times in a row")


@pytest.mark.parametrize(
    "ends",
    [
        [failed("a", 7), failed("a", 8), failed("a", 9)],
        [failed("a"), failed("b"), failed("a")],
        [failed("a"), PREEMPTED, failed("a")],
        [failed(), failed(), failed()],
    ],
    ids=["other_steps", "other_errors", "preempted_between", "nothing_known"],
)
def test_what_may_be_bad_luck(ends):
    assert isinstance(decide_restart(POLICY, ends), Restart)


@pytest.mark.parametrize(("returncode", "preempted"), [(75, True), (-15, True), (1, False), (-9, False), (143, False)])
def test_preemption(returncode, preempted):
    assert is_preemption(returncode) is preempted


@pytest.mark.parametrize("seed", range(200))
def test_budgets_are_kept_and_every_end_is_explained(seed):
    chance = random.Random(seed)
    policy = RestartPolicy(chance.randrange(20), chance.randrange(20), same_failure_limit=chance.randrange(2, 5))
    ends = []
    while True:
        workers = [chance.random() for _ in range(1000)]  # the first to fail decides
        first = workers.index(min(workers))
        kind = chance.choice([PREEMPTED, failed("a", chance.randrange(3)), failed(f"worker {first}"), failed()])
        ends.append(kind)
        decision = decide_restart(policy, ends)
        failures = sum(not end.is_preempted for end in ends)
        if isinstance(decision, GiveUp):
            asked = policy.max_preemptions if kind.is_preempted else policy.max_restarts
            assert decision.reason or asked == 0
            break
        assert failures <= policy.max_restarts
        assert len(ends) - failures <= policy.max_preemptions
        assert 0 <= decision.delay_s <= policy.max_delay_s
        assert decision.reason
    assert len(ends) <= policy.max_restarts + policy.max_preemptions + 1
