"""The last words of a failed job: the root cause first."""

import pytest

from tfdist.cluster.job_reports import FailureReport
from tfdist.launching.summary import TaskEnd, find_root_cause, summarize_failure


def report(name, error_type, unix_time, message="why"):
    return FailureReport(name, error_type, message, f"Traceback\n  at line 1\n{error_type}: {message}", unix_time)


def end(name, returncode, unix_time, *, was_asked=False, report=None, last_lines=()):
    return TaskEnd(name, returncode, was_asked, unix_time, report, last_lines)


VALUE = end("worker 1", 1, 13.0, report=report("worker 1", "ValueError", 10.0))
UNAVAILABLE = end("worker 0", 1, 11.0, report=report("worker 0", "UnavailableError", 10.5))


@pytest.mark.parametrize(
    ("ends", "root"),
    [
        ([UNAVAILABLE, VALUE], "worker 1"),  # it failed first, though it took longer to end
        ([end("worker 0", 1, 11.0), end("worker 1", 1, 10.9)], "worker 1"),  # no reports: order of their ends
        ([UNAVAILABLE, end("worker 1", -9, 10.6)], "worker 1"),  # noticed late: the report followed from the kill
        ([UNAVAILABLE, end("worker 1", -9, 12.0)], "worker 0"),  # far later: it did not
        ([UNAVAILABLE, end("worker 1", -6, 10.6)], "worker 0"),  # TensorFlow aborts processes whose peers are gone
        ([UNAVAILABLE, end("worker 1", -15, 10.0, was_asked=True)], "worker 0"),  # the launcher did that
        ([end("worker 0", 0, 1.0), VALUE], "worker 1"),
    ],
)
def test_root_cause(ends, root):
    assert find_root_cause(ends).name == root


def test_no_failure_no_cause():
    assert find_root_cause([end("worker 0", 0, 1.0), end("ps 0", -9, 1.0, was_asked=True)]) is None


def test_words_with_a_report():
    asked = end("worker 2", -15, 14.0, was_asked=True)
    status, text = summarize_failure(VALUE, [UNAVAILABLE, VALUE, asked, end("worker 3", 0, 9.0)])
    assert status == 1
    assert text.splitlines() == [
        "worker 1 ended with status 1: ValueError: why",
        "  | Traceback",
        "  |   at line 1",
        "  | ValueError: why",
        "  worker 0 ended afterwards: UnavailableError",
        "  worker 2 was asked to end, and did",
        "  worker 3 ended with status 0",
    ]


def test_words_without_a_report_take_the_end_of_standard_error():
    lines = ("noise", "Traceback (most recent call last):", '  File "x"', "KeyError: 'a'")
    root = end("worker 0", 1, 1.0, last_lines=lines)
    status, text = summarize_failure(root, [root])
    assert status == 1
    assert text.splitlines()[0] == "worker 0 ended with status 1: KeyError: 'a'"
    assert text.splitlines()[1:] == [
        "  The last lines that worker 0 wrote to standard error:",
        *(f"  | {line}" for line in lines),
    ]


def test_words_for_a_kill():
    root = end("worker 1", -9, 1.0, last_lines=("last words",))
    other = end("worker 0", -6, 2.0)
    status, text = summarize_failure(root, [other, root])
    assert status == 137
    assert text.startswith("worker 1 was killed by SIGKILL (signal 9)\n  The launcher did not do that")
    assert "  worker 0 ended afterwards: it was killed by SIGABRT (signal 6)" in text


def test_only_the_first_line_of_a_long_message_is_in_the_headline():
    root = end("chief", 1, 1.0, report=report("chief", "ClusterConfigError", 1.0, "bad.\n  Received: x"))
    assert summarize_failure(root, [root])[1].splitlines()[0] == "chief ended with status 1: ClusterConfigError: bad."
