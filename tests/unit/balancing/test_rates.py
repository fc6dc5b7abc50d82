"""What workers get done and where their time goes, from the tables of some steps."""

import pytest
from step_tables import tables

from tfdist.balancing import summarize_rates


def test_workers_alike():
    rates = summarize_rates(tables(20, 3))
    assert rates.total_rows_per_s == pytest.approx(3 * 8 / 0.013)  # 10 ms, 1 ms, and 2 ms of exchange
    assert rates.rows_per_s == pytest.approx([8 / 0.013] * 3)
    assert rates.steps_per_s == pytest.approx(1 / 0.013)
    assert rates.step_s == pytest.approx([0.013] * 3)
    assert rates.seconds["compute"] == pytest.approx([0.010] * 3)
    assert rates.seconds["exchange"] == pytest.approx([0.002] * 3)
    assert rates.seconds["wait"] == pytest.approx([0.0] * 3)
    assert rates.imbalance == pytest.approx(0)


def test_a_slow_worker():
    rates = summarize_rates(tables(20, 3, slow={1: {"input": 0.011}}))
    assert rates.seconds["input"] == pytest.approx([0, 0.011, 0])
    assert rates.seconds["wait"] == pytest.approx([0.011, 0, 0.011])
    assert rates.imbalance == pytest.approx(22 / (44 / 3) - 1)
    assert sum(rates.rows_per_s) == pytest.approx(rates.total_rows_per_s)


@pytest.mark.parametrize("num_workers", [1, 2, 3, 64])
def test_the_job_is_the_sum_of_its_workers(num_workers):
    slow = {0: {"compute": lambda step: 0.004 * (step % 3)}}
    rates = summarize_rates(tables(20, num_workers, slow=slow, noise=0.2))
    assert sum(rates.rows_per_s) == pytest.approx(rates.total_rows_per_s, rel=1e-3)
    parts = [sum(times[worker] for times in rates.seconds.values()) for worker in range(num_workers)]
    assert parts == pytest.approx(rates.step_s)
