"""Checking, before anything is started, that there is a program to run."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from tfdist.errors import ArgumentError, describe_problem


def build_script_command(script: str, arguments: list[str]) -> tuple[str, ...]:
    """The command that runs a script, as `python SCRIPT ...` would.

    Raises:
        ArgumentError: There is no such file, or it cannot be read.
    """
    path = Path(script)
    if path.is_file() and os.access(path, os.R_OK):
        return (sys.executable, "-u", script, *arguments)
    if path.is_dir():
        what, fix = "The script is a directory", "name the file in it, or use -m with the name of a package"
    elif path.exists():
        what, fix = "The script cannot be read", "mend its permissions"
    else:
        what, fix = "The script does not exist", f"check the path; it is looked for from {Path.cwd()}"
    raise ArgumentError(
        describe_problem(what, received=f"SCRIPT={script!r} (from the command line)", expected="a Python file", fix=fix)
    )


def build_module_command(module: str, arguments: list[str]) -> tuple[str, ...]:
    """The command that runs a module, as `python -m MODULE ...` would.

    Raises:
        ArgumentError: The module cannot be found, or is a package that cannot be run.
    """
    spec = _find_module(module)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = PathFinder.find_spec(f"{module}.__main__", list(spec.submodule_search_locations))
        what, fix = "The module is a package that cannot be run", f"add {module}/__main__.py, or name a module in it"
    else:
        what, fix = "The module cannot be found", f"check the name; it is looked for from {Path.cwd()} and in sys.path"
    if spec is not None:
        return (sys.executable, "-u", "-m", module, *arguments)
    raise ArgumentError(
        describe_problem(
            what, received=f"-m={module!r} (from the command line)", expected="the name of a module to run", fix=fix
        )
    )


def _find_module(module: str) -> ModuleSpec | None:
    """Finds a module without importing its parent packages, which might load TensorFlow."""
    top, *rest = module.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        return None
    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    finally:
        del sys.path[0]
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec
