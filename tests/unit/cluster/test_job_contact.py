"""The contact of launcher and task: environment variables and reports."""

import json

import pytest

from tfdist.cluster.job_environment import (
    DEFAULT_EXCHANGE_TIMEOUT_S,
    DEFAULT_START_TIMEOUT_S,
    EXCHANGE_TIMEOUT_S,
    JOB_ID,
    NETWORK_TIMEOUT_S,
    START_TIMEOUT_S,
    JobEnvironment,
    VerifyEnvironment,
    parse_exchange_timeout_s,
    parse_job_environment,
    parse_network_timeout_s,
    parse_start_timeout_s,
    parse_verify_environment,
)
from tfdist.cluster.job_reports import (
    FailureReport,
    ProgressReport,
    failure_file_name,
    parse_failure_report,
    parse_progress_report,
    progress_file_name,
    report_to_json,
)
from tfdist.errors import ArgumentError
from tfdist.launching.watchdog import JOB_ID_VARIABLE

PROGRESS = ProgressReport("worker 1", "connecting", True, 12.5)
FAILURE = FailureReport("ps 0", "ValueError", "bad \u20ac", "Traceback ...", 1.0)


def test_environment_round_trip():
    job = JobEnvironment("abc", "reports", "worker 1", "secret")
    assert parse_job_environment({**job.to_env(), "PATH": "x"}) == job
    assert parse_job_environment({}) is None
    assert parse_job_environment({**job.to_env(), JOB_ID: ""}) is None


def test_verification_round_trip():
    plan = VerifyEnvironment("replicas", "records", 3, 2)
    assert parse_verify_environment({**plan.to_env(), "PATH": "x"}) == plan
    assert parse_verify_environment({}) is None


def test_the_watchdog_which_cannot_import_uses_the_same_name():
    assert JOB_ID_VARIABLE == JOB_ID


@pytest.mark.parametrize(("text", "expected"), [("", DEFAULT_START_TIMEOUT_S), ("5", 5.0), (" 0.5 ", 0.5)])
def test_start_timeout(text, expected):
    assert parse_start_timeout_s({START_TIMEOUT_S: text}) == expected


def test_exchange_timeout():
    assert parse_exchange_timeout_s({}) == DEFAULT_EXCHANGE_TIMEOUT_S
    assert parse_exchange_timeout_s({EXCHANGE_TIMEOUT_S: "20"}) == 20
    with pytest.raises(ArgumentError, match="TFDIST_EXCHANGE_TIMEOUT_S='never'"):
        parse_exchange_timeout_s({EXCHANGE_TIMEOUT_S: "never"})


def test_network_timeout():
    assert parse_network_timeout_s({}) == 60
    assert parse_network_timeout_s({NETWORK_TIMEOUT_S: "20"}) == 20
    with pytest.raises(ArgumentError, match="TFDIST_NETWORK_TIMEOUT_S='0'"):
        parse_network_timeout_s({NETWORK_TIMEOUT_S: "0"})


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_bad_start_timeout(text):
    with pytest.raises(ArgumentError, match=f"{START_TIMEOUT_S}='{text}'"):
        parse_start_timeout_s({START_TIMEOUT_S: text})


def test_reports_round_trip():
    assert parse_progress_report(report_to_json(PROGRESS)) == PROGRESS
    assert parse_failure_report(report_to_json(FAILURE)) == FAILURE
    assert progress_file_name("worker 1") == "progress-worker-1.json"
    assert failure_file_name("chief") == "failure-chief.json"


@pytest.mark.parametrize(
    "change", [{"task": 1}, {"phase": "x"}, {"has_waited": 1}, {"unix_time": "1"}, {"phase": None}]
)
def test_a_damaged_progress_report_is_none(change):
    assert parse_progress_report(json.dumps({**json.loads(report_to_json(PROGRESS)), **change})) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"task": "a"}', "[" * 100_000])
def test_what_is_no_report_is_none(text):
    assert parse_progress_report(text) is None
    assert parse_failure_report(text) is None
