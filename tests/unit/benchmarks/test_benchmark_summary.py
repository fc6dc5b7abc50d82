import pytest

from benchmarks.plan import EXCHANGE_CASE, REFERENCE, SECTIONS, Choice, plan_case_groups
from benchmarks.summary import Spread, median_ratio, spread, summarize
from benchmarks.tables import format_ms, report


def run(participant, number, *wall, **more):
    return {
        "section": "steps",
        "case": "cnn",
        "participant": participant,
        "round": number,
        "series": {"": {"wall": list(wall)}},
        **more,
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], Spread(3.0, 3.0, 3.0, 1)),
        ([1.0, 3.0], Spread(2.0, 1.5, 2.5, 2)),
        ([5.0, 1.0, 2.0, 4.0, 3.0], Spread(3.0, 2.0, 4.0, 5)),
    ],
)
def test_spread(values, expected):
    assert spread(values) == expected


def test_a_ratio_compares_what_was_measured_in_the_same_round():
    # In round 1 the machine was slower for both, in round 2 for one alone. All rounds together would give 8.
    values, reference = {0: [2.0], 1: [8.0], 2: [8.0]}, {0: [1.0], 1: [4.0], 2: [1.0]}
    assert median_ratio(values, reference) == Spread(2.0, 2.0, 5.0, 3)


def test_a_ratio_needs_a_common_round():
    assert median_ratio({0: [2.0]}, {1: [1.0]}) is None


def test_rounds_are_put_together_and_errors_kept():
    failed = {key: value for key, value in run("c", 0).items() if key != "series"} | {"error": "no"}
    rows = summarize([run("a", 0, 2.0), run("b", 0, 4.0), run("a", 1, 4.0), run("b", 1, 2.0), failed], {"steps": "a"})
    assert [(row.participant, row.wall and row.wall.median, row.ratio and row.ratio.median) for row in rows] == [
        ("a", 3.0, None),
        ("b", 3.0, 1.25),
        ("c", None, None),
    ]
    assert rows[2].error == "no"


def test_labels_are_cases_of_their_own_whose_participants_stand_together():
    series = {"1 kB": {"wall": [1.0]}, "4 kB": {"wall": [2.0]}}
    rows = summarize([run(name, 0) | {"series": series} for name in "ab"], {"steps": "a"})
    assert [(row.case, row.participant) for row in rows] == [
        ("cnn, 1 kB", "a"),
        ("cnn, 1 kB", "b"),
        ("cnn, 4 kB", "a"),
        ("cnn, 4 kB", "b"),
    ]


def test_the_report_has_a_line_for_each_row():
    failed = {key: value for key, value in run("c", 0).items() if key != "series"} | {"error": "a | b"}
    text = report(summarize([run("a", 0, 2.0, 4.0), run("b", 0, 6.0), failed], {"steps": "a"}), ["- head"], REFERENCE)
    assert "| cnn | a | 3.00 (2.50 to 3.50) |  |  |" in text
    assert "|  | b | 6.00 |  | 2.00 |" in text
    assert "|  | c | fails: a / b |  |  |" in text


@pytest.mark.parametrize(("value", "expected"), [(0.123, "0.12"), (12.34, "12.3"), (123.4, "123")])
def test_format_ms(value, expected):
    assert format_ms(value) == expected


@pytest.mark.parametrize("section", SECTIONS)
def test_participants_of_a_case_differ_and_the_reference_is_one_of_them(section):
    groups = plan_case_groups(Choice(sections=[section]))
    assert groups
    for group in groups:
        names = [one.participant for one in group]
        assert len(set(names)) == len(names)
        assert not REFERENCE[section] or REFERENCE[section] in names or group[0].case == EXCHANGE_CASE
        assert {one.case for one in group} == {group[0].case}
