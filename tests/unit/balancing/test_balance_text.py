"""What is said of a window."""

from step_tables import tables

from tfdist.balancing import COLUMNS, Judge, describe_judgement, format_table, summarize_steps


def judged(steps):
    judge = Judge()
    judge.judge(summarize_steps(steps, 0.25))
    return judge.judge(summarize_steps(steps, 0.25))


def test_a_straggler():
    judgement = judged(tables(20, 2, slow={1: {"compute": 0.02}}))
    names = ["worker 0", "worker 1"]
    assert format_table(judgement, names).splitlines() == [
        "worker       input   compute      save     other     waits      step      rows",
        "worker 0       0.0      10.0       0.0       1.0      20.0      33.0       8.0",
        "worker 1       0.0      30.0       0.0       1.0       0.0      33.0       8.0  slow",
        "ms a step, medians of 20 steps; the exchange itself takes 2.0 ms",
    ]
    (said,) = describe_judgement(judgement, names)
    assert said.startswith(
        "worker 1 is slow in 100% of the steps: compute takes 30 ms, 10 ms on the others. Without that a step would "
        "take 13 ms instead of 33 ms; it costs 61%. "
    )


def test_all_is_well():
    assert describe_judgement(judged(tables(20, 2)), ["worker 0", "worker 1"]) == []


def test_what_balancing_cannot_cure_comes_with_what_to_try():
    (said,) = describe_judgement(judged(tables(20, 2, input=0.02)), ["worker 0", "worker 1"])
    assert "All workers wait for input, 20 ms of 33 ms or more" in said
    assert "prefetch" in said
    (said,) = describe_judgement(judged(tables(20, 2, transfer=0.05)), ["worker 0", "worker 1"])
    assert "The exchange takes 50 ms of 61 ms" in said
    assert "larger batch" in said


def test_of_many_workers_the_slowest_are_shown():
    judgement = judged(tables(20, 100, slow={70: {"compute": 0.02}}))
    text = format_table(judgement, [f"worker {rank}" for rank in range(100)])
    assert len(text.splitlines()) == 1 + 16 + 2
    assert "worker 70" in text
    assert "(84 more workers, which take less)" in text


def test_more_rows_than_the_others():
    steps = tables(20, 3, slow={1: {"compute": 0.02}})
    for step in steps:
        step[1, COLUMNS.index("rows")] = 24
    (said,) = describe_judgement(judged(steps), ["worker 0", "worker 1", "worker 2"])
    assert "It has 24.0 rows a step, the others 8.0: give the workers equal shares." in said


def test_fewer_rows_than_the_others():
    steps = tables(20, 3, slow={1: {"compute": 0.02}})
    for step in steps:
        step[1, COLUMNS.index("rows")] = 4
    (said,) = describe_judgement(judged(steps), ["worker 0", "worker 1", "worker 2"])
    assert said.endswith("It has 4.0 rows a step already, the others 8.0.")


def test_a_batch_that_cannot_be_divided():
    def steps(*rows):
        made = tables(20, len(rows))
        for step in made:
            step[:, COLUMNS.index("rows")] = rows
        return made

    (said,) = describe_judgement(judged(steps(2, 2, 1, 2)), [f"worker {rank}" for rank in range(4)])
    assert said == (
        "A batch of 7 rows cannot be divided by 4: some have 1, some 2, which costs 12%. Use a batch of 4 or 8 rows."
    )
    for rows in ([8, 8, 8], [40, 41, 40], [4, 8, 4], [2.5, 2, 2]):
        assert judged(steps(*rows)).remainder_cost == 0
