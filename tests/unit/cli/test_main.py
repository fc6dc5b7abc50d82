"""The command line: what cannot be carried out is one clear problem, with status 2."""

import pytest

import tfdist
from tfdist.cli.main import main


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("raise AssertionError('must not run')")
    return str(path)


def test_no_arguments_print_help(capsys):
    assert main([]) == 0
    assert "usage: tfdist" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"tfdist {tfdist.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--workers", "0"], "--workers cannot be 0"),
        (["--workers", "-1"], "--workers cannot be -1"),
        (["--workers", "two"], "--workers cannot be two"),
        (["--workers", "1.5"], "--workers cannot be 1.5"),
        (["--workers", "9" * 5000], "--workers cannot be 99"),
        (["--ps", "-1"], "--ps cannot be -1"),
        (["--ps", "1", "--workers", "0"], "--workers cannot be 0"),
        (["--threads-per-task", "0"], "--threads-per-task cannot be 0"),
        (["--start-timeout-s", "0"], "--start-timeout-s cannot be 0"),
        (["--start-timeout-s", "nan"], "--start-timeout-s cannot be nan"),
        (["--evaluator-grace-s", "x"], "--evaluator-grace-s cannot be x"),
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["--work", "2"], "unrecognized arguments"),  # no guessing of abbreviations
    ],
)
def test_options_that_cannot_be(arguments, expected, script, capsys):
    assert main(["run", *arguments, script]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tfdist: ")
    assert expected in error
    assert error.count("\n  ") == 3  # Received, Expected, Fix


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run"], "There is no script to run"),
        (["run", "--workers", "2"], "There is no script to run"),
        (["run", "-m"], "There is no script to run"),
        (["run", "no_such_script.py"], "The script does not exist"),
        (["run", "-m", "no_such_module"], "The module cannot be found"),
        (["walk"], "invalid choice: 'walk'"),
    ],
)
def test_programs_that_are_none(arguments, expected, capsys):
    assert main(arguments) == 2
    assert expected in capsys.readouterr().err


def test_a_log_dir_that_cannot_be(script, capsys):
    assert main(["run", "--log-dir", f"{script}/logs", script]) == 2
    assert "The log directory cannot be used" in capsys.readouterr().err


def test_an_inherited_tf_config_would_be_overridden(script, capsys, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {}}')
    assert main(["run", script]) == 2
    assert 'Received: TF_CONFIG={"cluster": {}} (from the environment)' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--workers", "1"], "--workers cannot be 1"),
        (["--mirrored", "1"], "--mirrored cannot be 1"),
        (["--steps", "0"], "--steps cannot be 0"),
        (["--tolerance", "-1"], "--tolerance cannot be -1"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_options_of_verify_that_cannot_be(arguments, expected, script, capsys):
    assert main(["verify", *arguments, script]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n  ") == 3  # Received, Expected, Fix


def test_verify_without_a_script(capsys):
    assert main(["verify"]) == 2
    assert "Expected: tfdist verify [options] SCRIPT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--local", "0"], "--local cannot be 0"),
        (["--local", "2", "--time-limit-s", "0"], "--time-limit-s cannot be 0"),
        (["--local", "2", "--time-limit-s", "1"], "--time-limit-s cannot be 1"),
        (["--bogus"], "unrecognized arguments: --bogus"),
        ([], "There is no cluster to look at"),
    ],
)
def test_options_of_doctor_that_cannot_be(arguments, expected, capsys):
    assert main(["doctor", *arguments]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n  ") == 3  # Received, Expected, Fix


def test_doctor_without_a_secret(capsys, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}')
    assert main(["doctor"]) == 2
    assert "Received: TFDIST_JOB_SECRET= (nothing, from the environment)" in capsys.readouterr().err


def test_doctor_names_a_broken_tf_config(capsys, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}')
    assert main(["doctor"]) == 1
    assert "An address has no port" in capsys.readouterr().out


def test_doctor_on_this_machine_with_a_tf_config(capsys, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}')
    assert main(["doctor", "--local", "2"]) == 2
    assert "TF_CONFIG is set" in capsys.readouterr().err
