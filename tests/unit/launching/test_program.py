"""Is there a program to run?"""

import sys

import pytest

from tfdist.errors import ArgumentError
from tfdist.launching.program import build_module_command, build_script_command


def test_a_script(tmp_path):
    script = tmp_path / "a b.py"
    script.write_text("")
    assert build_script_command(str(script), ["--x"]) == (sys.executable, "-u", str(script), "--x")


def test_scripts_that_are_none(tmp_path):
    with pytest.raises(ArgumentError, match="The script does not exist"):
        build_script_command(str(tmp_path / "none.py"), [])
    with pytest.raises(ArgumentError, match="The script is a directory"):
        build_script_command(str(tmp_path), [])


@pytest.fixture
def _modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("alone.py", "package/__init__.py", "package/inner.py", "able/__init__.py", "able/__main__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise AssertionError('must not be imported')")


@pytest.mark.usefixtures("_modules")
@pytest.mark.parametrize("name", ["alone", "package.inner", "able", "json.tool"])
def test_modules(name):
    assert build_module_command(name, ["a"]) == (sys.executable, "-u", "-m", name, "a")


@pytest.mark.usefixtures("_modules")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing_of_that_name", "cannot be found"),
        ("package.nothing", "cannot be found"),
        ("alone.inner", "cannot be found"),
        ("alone.py", "cannot be found"),
        ("", "cannot be found"),
        (".alone", "cannot be found"),
        ("package", "is a package that cannot be run"),
    ],
)
def test_modules_that_are_none(name, expected):
    with pytest.raises(ArgumentError, match=expected):
        build_module_command(name, [])
    assert "package" not in sys.modules
