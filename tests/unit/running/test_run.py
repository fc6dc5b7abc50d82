"""`tfdist.run` where it needs no TensorFlow: local training and evaluators."""

import json

import pytest

import tfdist
from tfdist.cluster.job_environment import JobEnvironment
from tfdist.cluster.job_reports import parse_failure_report, parse_progress_report
from tfdist.errors import ArgumentError, ClusterConfigError

EVALUATOR = json.dumps({"cluster": {"worker": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}})


@pytest.fixture
def reports(tmp_path, monkeypatch):
    for name, value in JobEnvironment("job", str(tmp_path), "worker 0", "secret").to_env().items():
        monkeypatch.setenv(name, value)
    return tmp_path


def read_failure(directory):
    return parse_failure_report((directory / "failure-worker-0.json").read_text())


def test_it_returns_what_train_returns(reports):
    assert tfdist.run(lambda: 7) == 7
    assert parse_progress_report((reports / "progress-worker-0.json").read_text()).phase == "ended"
    assert len(list(reports.glob("*.json"))) == 1


def test_without_a_launcher_there_are_no_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyError):
        tfdist.run(lambda: {}["x"])
    assert list(tmp_path.iterdir()) == []


def test_an_exception_is_reported_and_raised(reports):
    def train():
        raise ValueError("bad \ud800 batch")  # a lone surrogate, as from a file name

    with pytest.raises(ValueError, match="bad"):
        tfdist.run(train)
    report = read_failure(reports)
    assert (report.task, report.error_type) == ("worker 0", "ValueError")
    assert "batch" in report.message
    assert "in train" in report.traceback
    assert report.unix_time > 0


@pytest.mark.parametrize(("code", "is_failure"), [(None, False), (0, False), (3, True), ("a message", True)])
def test_system_exit(reports, code, is_failure):
    def train():
        raise SystemExit(code)

    with pytest.raises(SystemExit):
        tfdist.run(train)
    assert (reports / "failure-worker-0.json").exists() == is_failure


def test_a_broken_cluster_is_reported(reports, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(ClusterConfigError):
        tfdist.run(lambda: None)
    assert read_failure(reports).error_type == "ClusterConfigError"


def test_an_evaluator_evaluates(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", EVALUATOR)
    assert tfdist.run(lambda: "trained", evaluate=lambda: "evaluated") == "evaluated"


def test_an_evaluator_without_a_function(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", EVALUATOR)
    with pytest.raises(ArgumentError, match=r"Fix: call tfdist.run\(train, evaluate="):
        tfdist.run(lambda: None)


def test_a_report_directory_that_is_gone_does_not_matter(reports, monkeypatch):
    monkeypatch.setenv("TFDIST_REPORT_DIR", str(reports / "gone"))
    assert tfdist.run(lambda: 1) == 1
