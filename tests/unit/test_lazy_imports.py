"""What loads no TensorFlow: `import tfdist`, the pure packages, the launcher, the command line."""

import pkgutil
import subprocess
import sys

import pytest

import tfdist

_HEAVY = ("tensorflow", "keras", "numpy")
_LIGHT_PACKAGES = (
    "errors",
    "cluster",
    "planning",
    "checkpointing",
    "storage",
    "environment",
    "reporting",
    "launching",
    "cli",
)


def light_modules():
    names = ["tfdist", *(f"tfdist.{name}" for name in _LIGHT_PACKAGES)]
    for name in _LIGHT_PACKAGES:
        for found in pkgutil.walk_packages([f"{tfdist.__path__[0]}/{name}"], f"tfdist.{name}."):
            names.append(found.name)
    return names


def heavy_after(statements):
    code = f"import sys\n{statements}\nprint([name for name in {_HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_pure_modules():
    names = light_modules()
    assert len(names) > 25
    assert heavy_after("\n".join(f"import {name}" for name in names)) == "[]"


def test_the_check_itself_can_fail():
    pytest.importorskip("numpy")
    assert heavy_after("import numpy") == "['numpy']"


def test_public_names_that_are_light():
    names = "ClusterConfig, callbacks, cluster_config, errors, run"
    assert heavy_after(f"from tfdist import {names}; dir(callbacks); dir(__import__('tfdist'))") == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["--help"],
            ["run", "--help"],
            ["run", "--workers", "0", "x"],
            ["verify", "--help"],
            ["verify", "no_such.py"],
        ),
        *(["checkpoint", "--help"], ["checkpoint", "list", "--help"], ["checkpoint", "list", "."]),
        *(["checkpoint", "verify", "."], ["checkpoint", "prune", ".", "--keep", "1", "--dry-run"]),
        *(["doctor", "--help"], ["doctor"]),
    ],
)
def test_the_command(arguments):
    statements = (
        f"from tfdist.cli.main import main\ntry: main({arguments})\nexcept SystemExit as end: assert end.code == 0"
    )
    assert heavy_after(statements) == "[]"


def test_python_m():
    done = subprocess.run([sys.executable, "-m", "tfdist"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["usage:", "tfdist"])


def test_names():
    assert set(tfdist.__all__) <= set(dir(tfdist))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tfdist.nothing  # noqa: B018
