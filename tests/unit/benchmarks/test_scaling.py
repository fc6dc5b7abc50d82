import json

import pytest

from benchmarks.plan import EXCHANGE_CASE, PROFILES, Choice, plan_case_groups
from benchmarks.scaling import fit_exchange, predict_cases, report_scaling
from benchmarks.step_time import StepCosts, predict_step_ms
from benchmarks.tables import to_json

LABELS = {"1 kB": 1 << 10, "16 kB": 1 << 14, "256 kB": 1 << 18, "1 MB": 1 << 20, "4 MB": 1 << 22}
OVERHEAD = {"small_dense": 1.5, "wide_dense": -0.5}


def run(case, participant, series, **more):
    columns = {label: {"wall": [ms], "cpu": [ms / 2]} for label, ms in series.items()}
    return {"section": "scaling", "case": case, "participant": participant, "round": 0, "series": columns, **more}


def exchanges():
    """Exact lines, so that whatever they are fitted to, they are right."""
    return [
        run(EXCHANGE_CASE, f"{n} workers, {kind}", {label: n * (0.1 + size * 1e-6) for label, size in LABELS.items()})
        for n in (2, 4)
        for kind in ("shared memory", "sockets")
    ]


def steps(model, slower=1.0):
    """What the model of step time says, with the overhead; `slower` is a factor of what was measured on 4 workers."""
    rows = (64, 32, 16)
    alone = {number: 1.0 + number / 16 for number in rows}
    exchange_ms = {n: fit_exchange(medians(exchanges()), f"{n} workers, shared memory").line for n in (2, 4)}
    read = {"64 rows read": 0.264, "128 rows read": 0.328, "256 rows read": 0.456}
    costs = StepCosts(
        2,
        {(number, busy): ms for number, ms in alone.items() for busy in (1, 2)},
        fit_read(read),
        exchange_ms,
        {"small_dense": 4 * 269_322, "wide_dense": 4 * 5_824_522}[model],
        OVERHEAD[model],
    )
    labelled = {f"{number} rows a worker": ms for number, ms in alone.items()}
    two = {f"{number} rows a worker": predict_step_ms(costs, 2, number) for number in (64, 32)}
    four = {f"{number} rows a worker": slower * predict_step_ms(costs, 4, number) for number in (64, 16)}
    return [
        run(model, "1 worker", labelled),
        run(model, "2 workers", two),
        run(model, "4 workers", four),
        run(model, "2 processes, each alone", labelled),
        run(model, "batches read", read),
    ]


def fit_read(read):
    from benchmarks.step_time import fit_line

    return fit_line([(int(label.split()[0]), ms) for label, ms in read.items()])


def medians(runs):
    return {
        (one["case"], one["participant"], label): series["wall"][0]
        for one in runs
        for label, series in one["series"].items()
    }


def test_every_step_that_the_model_describes_is_predicted_from_one_of_each_model():
    cases = predict_cases([*exchanges(), *steps("small_dense"), *steps("wide_dense")], 2)
    assert [(c.model, c.workers, c.rows, c.kinds, c.calibrates) for c in cases[:6]] == [
        ("small_dense", 1, 64, ("weak", "strong"), True),
        ("small_dense", 2, 64, ("weak",), True),
        ("small_dense", 2, 32, ("strong",), False),
        ("small_dense", 4, 64, ("weak",), False),
        ("small_dense", 4, 16, ("strong",), False),
        ("wide_dense", 1, 64, ("weak", "strong"), True),
    ]
    assert [case.calibrates for case in cases[6:]] == [True, False, False, False]
    assert [case.predicted_ms for case in cases] == pytest.approx([case.measured_ms for case in cases])


def test_a_step_that_differs_shows_as_an_error_and_does_not_change_the_model():
    cases = predict_cases([*exchanges(), *steps("small_dense", slower=2.0)], 2)
    assert [case.error for case in cases] == pytest.approx([0, 0, 0, -0.5, -0.5])


def test_processor_time_is_not_shared():
    costs = {"16 kB": 1.0, "256 kB": 1.0, "1 kB": 1.0}
    exchange = [run(EXCHANGE_CASE, f"{n} workers, shared memory", costs) for n in (2, 4)]
    alone = run("small_dense", "2 processes, each alone", {"64 rows a worker": 8.0})
    measured = [run("small_dense", f"{n} workers", {"64 rows a worker": 10.0}) for n in (2, 4)]
    runs = [*exchange, alone, *measured]
    assert [(c.workers, c.measured_ms, c.predicted_ms) for c in predict_cases(runs, 2, "cpu")] == [
        (2, 5.0, pytest.approx(4.0 + 0.5 + 0.5)),  # half of everything, and the overhead
        (4, 5.0, pytest.approx(5.0)),
    ]
    assert predict_cases(runs, 2)[1].predicted_ms == pytest.approx(2 * 9.0 + 1.0)


def test_an_exchange_is_tested_on_sizes_that_it_was_not_fitted_to():
    series = {label: 1.0 + size * 1e-6 for label, size in LABELS.items()}
    series["16 kB"] *= 2
    fitted = fit_exchange(medians([run(EXCHANGE_CASE, "2 workers, sockets", series)]), "2 workers, sockets")
    assert fitted.line.alpha == pytest.approx(1.0)
    assert fitted.errors == pytest.approx((-0.5, 0.0))


def test_a_run_that_was_interrupted_predicts_what_it_can():
    runs = [*exchanges(), *steps("small_dense")]
    without_exchange = predict_cases(runs[4:], 2)
    assert [case.predicted_ms is None for case in without_exchange] == [False, True, True, True, True]
    for count in range(len(runs)):
        report_scaling(runs[:count], 2)
    assert report_scaling([], 2) == []


def test_sockets_whose_times_do_not_grow_project_nothing():
    flat = run(EXCHANGE_CASE, "2 workers, sockets", dict.fromkeys(LABELS, 1.0))
    others = [one for one in exchanges() if one["participant"] != "2 workers, sockets"]
    text = "\n".join(report_scaling([flat, *others, *steps("small_dense")], 2))
    assert "| small_dense | weak | 4 |" in text
    assert "On paper" not in text


def test_the_report_has_the_speed_up_the_error_and_the_goal():
    text = "\n".join(report_scaling([*exchanges(), *steps("small_dense", slower=1.2)], 2))
    assert "| small_dense | weak | 1 | 1 | 64 | 5.00 | 1.00 | 100% | 5.00 | (measured for the model) |" in text
    assert "(calibrates the overhead) |" in text
    assert "Errors of the 3 cases that test the model: median 17%, largest 17%; 1 within the goal of 15%." in text
    assert "| small_dense | 1,024 |" in text


def test_a_model_of_one_worker_is_only_projected():
    alone = run("cnn", "1 worker", {"64 rows a worker": 8.0})
    read = run("cnn", "batches read", {"64 rows read": 0.2, "256 rows read": 0.4})
    text = "\n".join(report_scaling([*exchanges(), *steps("small_dense"), alone, read], 2))
    assert "| cnn | weak" not in text
    assert "| cnn | 8 |" in text


def test_the_plan_measures_what_every_prediction_needs():
    for cores in (1, 2, 4):
        groups = plan_case_groups(Choice(sections=["scaling"], profile=PROFILES["middle"], cores=cores))
        names = {(one.case, one.participant): one for group in groups for one in group}
        for model in ("small_dense", "wide_dense"):
            for workers in (2, 4):
                rows = names[model, f"{workers} workers"].arguments["rows"]
                assert rows == [64, 64 // workers]
                busy = min(workers, cores)
                alone = names[model, "1 worker" if busy == 1 else f"{busy} processes, each alone"]
                assert set(rows) <= set(alone.arguments["rows"])
                assert (EXCHANGE_CASE, f"{workers} workers, shared memory") in names


def test_values_in_the_file_have_four_digits_and_each_run_a_line():
    text = to_json({"rounds": 1}, [run("a", "b", {"": 1.23456789}), {"error": "no"}])
    assert json.loads(text)["runs"][0]["series"][""]["wall"] == [1.235]
    assert json.loads(text)["runs"][1] == {"error": "no"}
    assert len(text.splitlines()) == 7
